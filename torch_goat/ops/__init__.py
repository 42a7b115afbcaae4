"""Tensor functions over ragged neighbourhoods: layout, softmax, sorting, weighted mean and the ragged RNN."""
