"""Real programs that are moved in tests: each checks its own state and prints `ok STEP`."""
