from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text as Rich

from torch_goat import settings
from torch_goat.app.cli import options
from torch_goat.app.cli.console import Aligned, console, say, write
from torch_goat.app.cli.progress import PoolProgress
from torch_goat.experiments import Event, Experiment, PlannedRun, run_plan, write_plan
from torch_goat.experiments.plan import why_failed
from torch_goat.experiments.recipes import RECIPES, Recipe, find_recipe, read_recipe, with_found
from torch_goat.experiments.tables import FORMATS, ResultTable
from torch_goat.experiments.tables.render import CellText, Grid, comparison_grid, main_grid, notes
from torch_goat.experiments.tables.run_table import TableFolder, asked_cells, begun_recipe
from torch_goat.settings import SettingsError

STYLES: Final = {"plain": "", "bold": "bold", "underlined": "underline", "small": "dim"}  # of rich
MOST_SENTENCES: Final = 10  # on failed runs


def reproduce(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="A table of the paper, or your own recipe such as my.toml.")
    ] = "",
    only: Annotated[str, typer.Option(metavar="ROWS", help="Rows to run and show, such as goat-lstm,gat.")] = "",
    datasets: Annotated[str, typer.Option(metavar="COLUMNS", help="Columns to run and show, such as cora,photo.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Quick test: 2 runs of a few epochs per cell.")] = False,
    found: Annotated[
        list[str] | None,
        typer.Option("--settings", metavar="ROW=FILE", help="Settings found by goat tune for a row; repeatable."),
    ] = None,
    search: Annotated[
        int, typer.Option(metavar="TRIALS", help="First search settings for every cell, with this many trials.")
    ] = 0,
    out: Annotated[Path, typer.Option(help="Folder of runs and tables.")] = Path("results"),
    format: Annotated[str, typer.Option(help="Print the table as markdown, latex or csv.")] = "",
    collect_only: Annotated[bool, typer.Option("--collect", help="Run nothing; show existing results.")] = False,
    plan_only: Annotated[
        Path | None, typer.Option(metavar="PLAN.json", help="Run nothing; write the missing runs as a plan.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the recipe, to copy and edit.")] = False,
    jobs: Annotated[
        int, typer.Option(min=0, help="Parallel runs, each in a process; 0 for one per core, 8 on a GPU.")
    ] = 0,
    device: options.Device = "auto",
    precision: options.Precision = None,
    data_dir: options.DataDir = None,
) -> None:
    """Run the missing cells of a table of the paper and show the results next to the published numbers.

    Finished cells are kept, and stopped cells are resumed. Without TABLE, the tables are listed. Cells that the recipe
    marks as on demand take long; they run only if --only names their rows.

    Runs are in OUT/TABLE, with one line each in OUT/TABLE.jsonl; the whole table is in OUT/TABLE.md, .tex and .csv.

    With --search, the settings of every cell are the best of TRIALS trials on the validation nodes. They are saved in
    OUT/TABLE.toml, which becomes the recipe of that folder.

    To add your own rows: goat reproduce table2 --show > my.toml, add a row to it, then goat reproduce my.toml.

    To use settings of goat tune: --settings goat-lstm=best.toml applies the file to that row on the file's dataset, and
    to columns and rows that share its settings. Use another --out, or save the recipe with --show > my.toml.

    To run on another machine: write a plan with --plan-only PLAN.json, run python -m torch_goat.training.worker
    PLAN.json there, and copy the folders back for --collect; or run python -m torch_goat.tables.worker TABLE there, and
    copy OUT/TABLE.jsonl back.

    Example: goat reproduce table2 --only goat-lstm,gat --datasets cora,photo --jobs 2
    """
    if not name:
        options.check_unused(context, "goat reproduce without a table")
        return _list_tables()
    _check_purpose(context, show, plan_only, collect_only)
    if format:
        options.check_known("format", format, FORMATS)
    path = find_recipe(name)
    folder = out / f"{path.stem}{'-quick' if quick else ''}"
    recipe = _with_all_found(begun_recipe(path, folder, search), found or [])
    rows, columns, cells = asked_cells(recipe, only, datasets)
    if show:
        return write(recipe.to_toml() if found or search else path.read_text(encoding="utf-8"))
    table = TableFolder(recipe, folder, quick=quick, precision=precision, data_dir=data_dir)
    if plan_only is not None:
        if plan_only.exists():
            raise SettingsError(f"{plan_only} already exists; remove it or name another file.")
        write_plan(plan_only, missing := table.missing(cells))
        return say(f"Wrote {len(missing)} runs to {plan_only}.")
    table.write()  # fails early if the folder is not writable
    failures, lacking = [], {}

    def runner(runs: Sequence[PlannedRun], on_event: Callable[[Event], None]) -> list[str]:
        def watch(event: Event) -> None:
            on_event(event)
            progress.grow(len(runs))
            progress(event)

        with PoolProgress(len(runs), lambda number: str(runs[number].folder.relative_to(folder))) as progress:
            ends = run_plan(runs, jobs=jobs, device=device, data_dir=data_dir, on_event=watch)
        return why_failed(runs, ends)

    if not collect_only:
        lacking = table.lacking(cells)
        try:
            failures = table.run({cell for cell in cells if cell[1] not in lacking}, runner)
        finally:  # also after Ctrl-C
            table.write()
    _print(table.whole.part(rows, columns), format, folder)
    problems = [text for (row, column), text in table.problems().items() if row in rows and column in columns]
    _explain([*lacking.values(), *problems, *failures])
    if problems or failures:
        raise typer.Exit(1)
    return None


def _check_purpose(context: typer.Context, show: bool, plan_only: Path | None, collect_only: bool) -> None:
    """Refuses options without effect."""
    if show:
        options.check_unused(context, "--show", but=("show", "found", "search", "out"))
    elif plan_only is not None:
        options.check_unused(context, "--plan-only", ("jobs", "device", "format", "collect_only"))
    elif collect_only:
        options.check_unused(context, "--collect", ("jobs", "device"))


def _list_tables() -> None:
    found = {name: read_recipe(name) for name in RECIPES}
    lines = [[name, recipe.title, ",".join(recipe.rows), ",".join(recipe.columns)] for name, recipe in found.items()]
    console().print(Aligned(["table", "title", "rows", "columns"], lines))


def _with_all_found(recipe: Recipe, assignments: Iterable[str]) -> Recipe:
    """The recipe with the settings of ``--settings``."""
    for assignment in assignments:
        row, equals, file = assignment.partition("=")
        if not equals or not Path(file).is_file():
            raise SettingsError(f"--settings must be ROW=FILE with an existing file, got {assignment!r}.")
        recipe = with_found(recipe, row, settings.read(Experiment, file), file)
    return recipe


def _print(part: ResultTable, format: str, files: Path) -> None:
    if format:
        return write(FORMATS[format][1](part))
    for grid in filter(None, (main_grid(part), comparison_grid(part))):
        say(grid.title)
        console().print(_rich(grid))
    for line in (*notes(part), f"The whole table is in {files}.md, .tex and .csv."):
        say(line)
    return None


def _rich(grid: Grid) -> Table:
    def cell(lines: CellText) -> Rich:
        return Rich("\n").join(Rich.assemble(*((piece.text, STYLES[piece.style]) for piece in line)) for line in lines)

    made = Table(box=SIMPLE_HEAD)
    for number, head in enumerate(grid.head):
        made.add_column(cell(head), justify="right" if number else "left")
    for number, row in enumerate(grid.body):
        made.add_row(*map(cell, row), end_section=number + 1 in grid.rules)
    return made


def _explain(sentences: Iterable[str]) -> None:
    """Prints why cells are empty, each sentence once."""
    sentences = list(dict.fromkeys(sentences))
    more = [f"... and {len(sentences) - MOST_SENTENCES} more."] if len(sentences) > MOST_SENTENCES else []
    for sentence in sentences[:MOST_SENTENCES] + more:
        say(sentence, stderr=True)
