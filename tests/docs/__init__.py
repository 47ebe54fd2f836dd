"""Pages of the reference that are generated from the code, and the tests of all pages."""
