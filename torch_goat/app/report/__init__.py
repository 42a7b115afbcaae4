"""A run, or a folder of runs, as one page to read and to share."""

from torch_goat.app.report.compose import report

__all__ = ["report"]
