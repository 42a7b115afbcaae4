"""Baseline networks, training, runs, search, result tables and information measures."""
