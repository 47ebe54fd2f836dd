"""The node agent of process nodes: one program for all of them, since they share the machine."""
