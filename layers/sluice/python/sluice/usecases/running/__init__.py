"""Jobs in clusters: made, watched, and cleared away."""
