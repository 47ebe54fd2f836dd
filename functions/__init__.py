"""One thin Lambda handler a file."""
