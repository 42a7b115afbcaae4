"""Result tables: from run folders and recorded results to Markdown, LaTeX and CSV."""

from torch_goat.experiments.tables.ledger import Ledger, RecordedRun
from torch_goat.experiments.tables.render import FORMATS, to_csv, to_latex, to_markdown
from torch_goat.experiments.tables.table import Entry, Heading, ResultTable, tabulate

__all__ = [
    "FORMATS",
    "Entry",
    "Heading",
    "Ledger",
    "RecordedRun",
    "ResultTable",
    "tabulate",
    "to_csv",
    "to_latex",
    "to_markdown",
]
