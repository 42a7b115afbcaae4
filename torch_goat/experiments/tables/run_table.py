"""Runs a table without the command line: ``python -m torch_goat.tables.worker table2 --search 20``.

It needs only PyTorch, PyG and Lightning Fabric, so that a machine on which nothing else can be installed can run a
whole search: the trials, the finals and the runs with the settings found. The results are in ``OUT/TABLE.jsonl``, which
another machine shows with ``goat reproduce TABLE --out OUT --collect``.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from torch_goat.data.datasets.raw import data_folder
from torch_goat.experiments import PlannedRun, RunError
from torch_goat.experiments.plan import add_arguments, run_logged, why_failed
from torch_goat.experiments.recipes import find_recipe
from torch_goat.experiments.tables.table_folder import TableFolder, asked_cells, begun_recipe, beside
from torch_goat.experiments.training.interrupt import stopping_after


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is missing; exit code 0 if all is done, 1 if something failed, 2 for wrong usage, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_goat.tables.worker", description="Run what is missing of a table, several runs at a time."
    )
    parser.add_argument("table", metavar="TABLE", help="a table of the paper, or a recipe such as my.toml")
    parser.add_argument("--only", default="", metavar="ROWS", help="rows to run, separated by commas")
    parser.add_argument("--datasets", default="", metavar="COLUMNS", help="columns to run, separated by commas")
    parser.add_argument("--search", type=int, default=0, metavar="TRIALS", help="search the settings of every cell")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the tables (default: results)")
    add_arguments(parser)
    options = parser.parse_args(arguments)

    def do(runs: Sequence[PlannedRun]) -> list[str]:
        return why_failed(runs, run_logged(runs, options))

    try:
        path = find_recipe(options.table)
        recipe = begun_recipe(path, options.out / path.stem, options.search)
        _, _, cells = asked_cells(recipe, options.only, options.datasets)
        place = None if options.data_dir is None else data_folder(options.data_dir)
        table = TableFolder(recipe, options.out / path.stem, data_dir=place)
        lacking = table.lacking(cells)
        cells = {cell for cell in cells if cell[1] not in lacking}
        try:
            with stopping_after(options.seconds):
                failures = table.run(cells, do)
        finally:  # also after Ctrl-C
            table.keep()
    except (ValueError, OSError, RunError) as error:
        parser.error(str(error))
    except KeyboardInterrupt as error:
        print(f"worker: {str(error) or 'stopped.'}", file=sys.stderr)
        return 130
    _, problems = table.ledger.collect(run for run in table.runs if (run.row, run.column) in cells)
    failures += problems.values()
    for sentence in [*lacking.values(), *failures]:
        print(f"worker: {sentence}", file=sys.stderr)
    print(f"The results are in {beside(table.folder, '.jsonl')}; {len(table.missing(cells))} runs are missing.")
    return 1 if failures else 0
