"""Datasets, user tables, samplers and memory-mapped graphs."""
