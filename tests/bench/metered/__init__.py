"""AWS in one process for benchmarks: real adapters and botocore, counted units, virtual latency."""
