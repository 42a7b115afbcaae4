"""RNNs over segments of any length, one file per backend."""
