"""The HTTP API: requests in, use cases called, responses out."""
