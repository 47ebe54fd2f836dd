"""The kinds of jobs that Sluice runs: one row of one table each."""
