"""A stand-in for Cedana: its documented calls, carried out by process nodes and CRIU."""
