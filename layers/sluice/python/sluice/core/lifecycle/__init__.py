"""A workload as a record: its wishes and states, what it waits for, what it may cost."""
