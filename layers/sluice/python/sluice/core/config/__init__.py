"""What administrators write: documents, and the objects that they become."""
