"""Off a machine that goes away, or that is given back, and on elsewhere."""
