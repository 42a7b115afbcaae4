"""Tables of results: run folders to numbers, numbers to Markdown, LaTeX and CSV."""

from torch_goat.experiments.tables.collect import Collected, collect
from torch_goat.experiments.tables.ledger import Ledger
from torch_goat.experiments.tables.render import FORMATS, to_csv, to_latex, to_markdown
from torch_goat.experiments.tables.statistics import Summary, paired_p_value, summarize, unpaired_p_value
from torch_goat.experiments.tables.table import Comparison, Entry, Heading, ResultTable, tabulate

__all__ = [
    "FORMATS",
    "Collected",
    "Comparison",
    "Entry",
    "Heading",
    "Ledger",
    "ResultTable",
    "Summary",
    "collect",
    "paired_p_value",
    "summarize",
    "tabulate",
    "to_csv",
    "to_latex",
    "to_markdown",
    "unpaired_p_value",
]
