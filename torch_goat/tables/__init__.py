"""The old address of :mod:`torch_goat.experiments.tables`, kept for ``python -m torch_goat.tables.worker``."""
