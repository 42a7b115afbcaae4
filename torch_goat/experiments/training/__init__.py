"""Training on one graph: in memory or in a run folder, on one device or on several."""
