"""Virtual time around the scheduling core: what-if questions, tests and benchmarks."""
