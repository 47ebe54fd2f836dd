"""Where the time and the money of work went."""
