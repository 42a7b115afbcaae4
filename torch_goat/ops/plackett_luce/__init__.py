"""Random orders with a learnable distribution: drawing them, their log-probability and its gradient, per backend."""
