"""A job that only counts, and the trace by which others judge what it went through."""
