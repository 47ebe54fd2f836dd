"""What follows from changed records, and what makes good for lost messages."""
