"""From a submitted document to the Job that runs it: reading, vetting, rendering."""
