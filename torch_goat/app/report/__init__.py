"""Self-contained HTML reports on a run or a folder of runs."""

from torch_goat.app.report.compose import report as report
