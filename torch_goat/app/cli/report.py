import csv
import importlib.util
import time
from pathlib import Path
from typing import Annotated

import typer

from torch_goat.app.cli.console import announce, say
from torch_goat.app.cli.options import DataDir, Force, check_new
from torch_goat.files import write_atomic
from torch_goat.settings import SettingsError


def report(
    place: Annotated[
        Path, typer.Argument(metavar="RUN_OR_FOLDER", help="A run folder, or a folder that contains some.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="Output file.")] = Path("report.html"),
    nodes: Annotated[
        str,
        typer.Option(
            metavar="ID,ID,...",
            help="Nodes to explain, at most 200, as a line of CSV; by default the 20 with the largest errors.",
        ),
    ] = "",
    force: Force = False,
    data_dir: DataDir = None,
) -> None:
    """Write a self-contained HTML page: comparison, learning curves, calibration, cost, and the learned orders.

    Example: goat report runs -o report.html --nodes 17,42
    """
    check_new(out, force)
    if importlib.util.find_spec("matplotlib") is None:
        raise SettingsError("a report needs matplotlib; install it with: pip install 'torch-goat[report]'.")
    announce(f"the runs in {place}")
    from torch_goat.app.report import report as make_report

    start = time.perf_counter()
    page = make_report(place, nodes=[name for name in next(csv.reader([nodes]), []) if name], data_dir=data_dir)
    write_atomic(out, page)
    size, seconds = len(page.encode()) / 1e6, time.perf_counter() - start
    say(f"The report is in {out} ({size:.1f} MB, {seconds:.1f} s); open it in a browser.")
