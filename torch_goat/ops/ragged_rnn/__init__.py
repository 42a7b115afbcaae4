"""RNNs over segments of any length (Eq. 3), with one file or folder per backend: reference, torch, cpu, triton."""
