"""Result tables: from run folders and recorded results to Markdown, LaTeX and CSV."""

from torch_goat.experiments.tables.ledger import Ledger as Ledger
from torch_goat.experiments.tables.ledger import RecordedRun as RecordedRun
from torch_goat.experiments.tables.render import FORMATS as FORMATS
from torch_goat.experiments.tables.render import to_csv as to_csv
from torch_goat.experiments.tables.render import to_latex as to_latex
from torch_goat.experiments.tables.render import to_markdown as to_markdown
from torch_goat.experiments.tables.table import Entry as Entry
from torch_goat.experiments.tables.table import Heading as Heading
from torch_goat.experiments.tables.table import ResultTable as ResultTable
from torch_goat.experiments.tables.table import tabulate as tabulate
