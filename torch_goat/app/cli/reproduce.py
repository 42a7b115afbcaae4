from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.style import Style
from rich.table import Table
from rich.text import Text as Rich

from torch_goat import settings
from torch_goat.app.cli import options
from torch_goat.app.cli.console import Aligned, console, say
from torch_goat.app.cli.progress import PlanProgress
from torch_goat.experiments import Experiment, PlannedRun, run_plan, write_plan
from torch_goat.experiments.plan import why_failed
from torch_goat.experiments.recipes import RECIPES, Recipe, find_recipe, read_recipe, with_found
from torch_goat.experiments.tables import FORMATS, ResultTable
from torch_goat.experiments.tables.render import CellText, Grid, comparison_grid, main_grid, notes
from torch_goat.experiments.tables.table_folder import TableFolder, asked_cells, begun_recipe
from torch_goat.settings import SettingsError, nearest

STYLES: Final = {
    "plain": Style(),
    "bold": Style(bold=True),
    "underlined": Style(underline=True),
    "small": Style(dim=True),
}
MOST_SENTENCES: Final = 10  # on runs that failed


def reproduce(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="TABLE", help="A table of the paper, or a recipe of your own, such as my.toml.")
    ] = "",
    only: Annotated[str, typer.Option(metavar="ROWS", help="Rows to run and show, such as goat-lstm,gat.")] = "",
    datasets: Annotated[str, typer.Option(metavar="COLUMNS", help="Columns to run and show: cora,photo.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Try it out: 2 runs of a few epochs for each cell.")] = False,
    found: Annotated[
        list[str] | None,
        typer.Option("--settings", metavar="ROW=FILE", help="Settings that goat tune found, for a row; repeatable."),
    ] = None,
    search: Annotated[
        int, typer.Option(metavar="TRIALS", help="First search the settings of every cell, with as many trials.")
    ] = 0,
    out: Annotated[Path, typer.Option(help="The folder of the runs and tables.")] = Path("results"),
    format: Annotated[str, typer.Option(help="Print markdown, latex or csv instead of a table to look at.")] = "",
    collect_only: Annotated[bool, typer.Option("--collect", help="Run nothing, show what is there.")] = False,
    plan_only: Annotated[
        Path | None, typer.Option(metavar="PLAN.json", help="Run nothing, write what is missing as a plan.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the recipe, to copy and change.")] = False,
    jobs: options.Jobs = 0,
    device: options.Device = "auto",
    precision: options.Precision = None,
    data_dir: options.DataDir = None,
) -> None:
    """Run the missing cells of a table of the paper and show our numbers beside its own.

    Cells that are done are kept, stopped ones go on; without TABLE the tables are listed. Cells that a recipe has on
    demand, since they take long, are run when --only names their rows.

    Runs are in OUT/TABLE, a line for each in OUT/TABLE.jsonl, and the whole table is in OUT/TABLE.md, .tex and .csv.

    With --search the settings of every row are the best of TRIALS on the validation nodes. They are kept in
    OUT/TABLE.toml, the recipe of that folder from then on.

    Rows of your own: goat reproduce table2 --show > my.toml, add a row there, and goat reproduce my.toml.

    Settings of goat tune: --settings goat-lstm=best.toml takes those of the file, for that row on the file's dataset.

    Columns and rows that share settings follow. Give them an --out of their own, or keep them with --show > my.toml.

    Another machine: --plan-only PLAN.json, there python -m torch_goat.training.worker PLAN.json, then --collect; or all
    of it there, python -m torch_goat.tables.worker TABLE, and its OUT/TABLE.jsonl here.

    Example: goat reproduce table2 --only goat-lstm,gat --datasets cora,photo --jobs 2
    """
    if not name:
        options.refuse_beside(context, "goat reproduce without a table")
        return _list_tables()
    _check_purpose(context, show, plan_only, collect_only)
    if format and format not in FORMATS:
        raise SettingsError(f"there is no format {format!r}{nearest(format, FORMATS)}")
    path = find_recipe(name)
    folder = out / f"{path.stem}{'-quick' if quick else ''}"
    recipe = _with_all_found(begun_recipe(path, folder, search), found or [])
    rows, columns, cells = asked_cells(recipe, only, datasets)
    if show:
        return typer.echo(recipe.to_toml() if found or search else path.read_text(encoding="utf-8"), nl=False)
    table = TableFolder(recipe, folder, quick=quick, precision=precision, data_dir=data_dir)
    if plan_only is not None:
        return _write_plan(plan_only, table.missing(cells))
    table.write()  # at once, so that a folder of no use is found at once
    failures, lacking = [], {}

    def runner(runs: Sequence[PlannedRun]) -> list[str]:
        with PlanProgress([str(run.folder.relative_to(folder)) for run in runs]) as progress:
            ends = run_plan(runs, jobs=jobs, device=device, data_dir=data_dir, on_event=progress)
        return why_failed(runs, ends)

    if not collect_only:
        lacking = table.lacking(cells)
        try:
            failures = table.run({cell for cell in cells if cell[1] not in lacking}, runner)
        finally:  # also after Ctrl-C
            table.write()
    _print(table.whole.part(rows, columns), format, folder)
    problems = [table.problems[cell] for cell in table.problems if cell[0] in rows and cell[1] in columns]
    _explain([*lacking.values(), *problems, *failures])
    if problems or failures:
        raise typer.Exit(1)
    return None


def _check_purpose(context: typer.Context, show: bool, plan_only: Path | None, collect_only: bool) -> None:
    """Refuses what does nothing where a recipe is shown, a plan is written or nothing is run."""
    if show:
        options.refuse_beside(context, "--show", but=("show", "found", "search", "out"))
    elif plan_only is not None:
        options.refuse_beside(context, "--plan-only", ("jobs", "device", "format", "collect_only"))
    elif collect_only:
        options.refuse_beside(context, "--collect", ("jobs", "device"))


def _list_tables() -> None:
    found = {name: read_recipe(name) for name in RECIPES}
    lines = [[name, recipe.title, ",".join(recipe.rows), ",".join(recipe.columns)] for name, recipe in found.items()]
    console().print(Aligned(["table", "what it shows", "rows", "columns"], lines))


def _with_all_found(recipe: Recipe, assignments: Iterable[str]) -> Recipe:
    """The recipe with what ``--settings`` names."""
    for assignment in assignments:
        row, equals, file = assignment.partition("=")
        if not equals or not Path(file).is_file():
            raise SettingsError(f"--settings {assignment} is no ROW=FILE with a file that exists.")
        recipe = with_found(recipe, row, settings.read(Experiment, file), file)
    return recipe


def _write_plan(path: Path, runs: Sequence[PlannedRun]) -> None:
    if path.exists():
        raise SettingsError(f"{path} is there already; remove it or name another file.")
    write_plan(path, runs)
    say(f"{path} has {len(runs)} runs.")


def _print(part: ResultTable, format: str, files: Path) -> None:
    if format:
        return typer.echo(FORMATS[format][1](part), nl=False)
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
    """Says below the table why cells are empty, each sentence once."""
    sentences, screen = list(dict.fromkeys(sentences)), console(stderr=True)
    more = [f"... and {len(sentences) - MOST_SENTENCES} more."] if len(sentences) > MOST_SENTENCES else []
    for sentence in sentences[:MOST_SENTENCES] + more:
        screen.print(sentence, markup=False, soft_wrap=True)
