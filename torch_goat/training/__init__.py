"""The old address of :mod:`torch_goat.experiments.training`, kept for ``python -m torch_goat.training.worker``."""
