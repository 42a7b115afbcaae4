"""``goat train`` on a graph of one's own: what was read, GOAT beside its rivals, and what to do next."""

import math
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from torch_goat import settings
from torch_goat.app.cli.console import Aligned, console, say
from torch_goat.app.cli.options import sets
from torch_goat.data.datasets import DATASETS
from torch_goat.data.loader import open_graph
from torch_goat.data.loader.folder import digest
from torch_goat.data.tables import Column, Tables, find_tables, load_tables
from torch_goat.experiments import Experiment, Result
from torch_goat.experiments.comparison import Summary, summarize
from torch_goat.experiments.models.layers import KINDS
from torch_goat.experiments.search import fingerprint, own_starting_point
from torch_goat.experiments.training.metrics import LOWER_IS_BETTER, decisive
from torch_goat.experiments.training.task import task_of
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    from torch_goat.data.tables.graph import TableGraph

MODELS: Final = {"goat": "GOAT", "gat": "GAT", "sage-mean": "GraphSAGE (mean)"}
UNBALANCED: Final = 3.0  # times the training nodes of the rarest class, in the most frequent one
RECORDED: Final = (0, 10, 30, 100, 300)  # epochs after which the order is kept, so that its stability can be shown
MOST_RECORDED: Final = 1_000_000  # edges times heads; of more, files would be large
SUFFIXES: Final = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".graphml", ".xml")


class Trained(NamedTuple):
    """A run of the comparison."""

    model: str
    folder: Path
    result: Result


def is_own(dataset: str, edges: str) -> bool:
    """Whether an argument of ``goat train`` names files and not a dataset."""
    return bool(edges) or (
        dataset not in DATASETS
        and (Path(dataset).suffix.lower() in SUFFIXES or bool(dataset and Path(dataset).exists()))
    )


def check_there(dataset: str, options: Sequence[str]) -> None:
    """Refuses what is neither a dataset nor files: a path that leads nowhere, or options of files beside a name.

    Args:
        dataset: What was named.
        options: The options of a graph of one's own that were given, such as ``"--target"``.
    """
    if dataset and dataset not in DATASETS and (options or len(Path(dataset).parts) > 1):
        raise SettingsError(f"there is no file or folder {dataset!r}; check the path.")
    if options:
        raise SettingsError(f"{options[0]} is for a graph of yours; name its files first.")


def make_tables(nodes: str, edges: str, *, fractions: str = "", **options: Any) -> Tables:
    """The tables from the arguments of the command line, those of a folder's ``graph.toml`` beneath them.

    Args:
        nodes: The file of the nodes, a GraphML file or a folder.
        edges: The file of the edges, if it is another.
        fractions: The shares of training, validation and test nodes, as ``"0.6,0.2,0.2"``.
        options: Values of :class:`Tables`; those that are empty leave the folder's or the default.
    """
    values = find_tables(nodes, edges) | {key: value for key, value in options.items() if value}
    column, time = options.get("split_column"), options.get("time_column")
    if column and (time or fractions):
        other = "--time-column" if time else "--fractions"
        raise SettingsError(f"--split-column {column} and {other} exclude each other; leave one of them out.")
    if column:
        values["time_column"] = ""
    if time or fractions:
        values["split_column"] = ""
    if fractions:
        values |= _shares(fractions)
    if not values.get("target"):
        raise SettingsError("name the column of the nodes to predict with --target.")
    values |= {key: str(Path(values[key]).resolve()) for key in ("nodes", "edges") if values[key]}
    return settings.parse(Tables, values, "the tables")


def _shares(text: str) -> dict[str, Any]:
    try:
        train, val, test = (float(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(f"--fractions {text!r} must be three shares such as 0.6,0.2,0.2.") from None
    if not math.isclose(train + val + test, 1, abs_tol=1e-6):
        raise SettingsError(f"--fractions {text!r} must add up to 1, but they make {train + val + test:g}.")
    return {"train": train, "val": val}


def graph_name(tables: Tables) -> str:
    """A name for the graph that is no dataset's: that of its file, or of the folder if the file says nothing."""
    path = Path(tables.nodes)
    name = path.parent.name if path.stem.lower() in ("nodes", "node") else path.stem
    return _plain_name(name)


def _plain_name(name: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "graph"
    return f"{name}-own" if name in DATASETS else name


def show_graph(tables: Tables, graph: "TableGraph") -> None:
    """Says what was read: columns, target, splits, and all that a user should know."""
    data, schema = graph.data, graph.schema
    edges = graph.num_edges
    kind = "directed" if schema.directed else "undirected"
    sizes = [int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test")]
    say(f"{graph_name(tables)}: {data.num_nodes} nodes, {edges} {kind} edges; named by the column {schema.id!r}.")
    rows = [[column.name, "nodes", *_describe(column)] for column in schema.nodes]
    rows += [[column.name, "edges", *_describe(column)] for column in schema.edges]
    if len(rows) > 30:
        kinds = {kind: sum(row[2] == kind for row in rows) for kind in ("number", "flag", "category")}
        say("Columns: " + ", ".join(f"{count} of the kind {kind}" for kind, count in kinds.items() if count) + ".")
    elif rows:
        console().print(Aligned(["column", "of", "kind", "becomes"], rows))
    if schema.task == "classification":
        counts = torch.bincount(data.y[data.train_mask], minlength=len(schema.classes)).tolist()
        shown = ", ".join(f"{name}: {count}" for name, count in list(zip(schema.classes, counts, strict=True))[:20])
        shown += ", ..." if len(counts) > 20 else ""
        say(f"Target: {schema.target!r}, {len(schema.classes)} classes (training nodes: {shown}).")
    else:
        mean, scale = schema.target_mean, schema.target_scale
        say(f"Target: {schema.target!r}, a number (mean {mean:.4g}, standard deviation {scale:.4g}).")
    say(f"Split: {tables.split}, {sizes[0]} training, {sizes[1]} validation and {sizes[2]} test nodes.")
    for note in graph.notes:
        say(f"Note: {note}")


def _describe(column: Column) -> list[str]:
    if column.kind == "category":
        shown = ", ".join(column.categories[:6]) + (", ..." if len(column.categories) > 6 else "")
        text = f"one of {len(column.categories)}: {shown}"
    elif column.kind == "flag":
        text = "0 or 1 as it is"
    else:
        text = f"standardised (mean {column.mean:.4g}, standard deviation {column.scale:.4g})"
    return [column.kind, text + (", with an indicator of missing values" if column.missing else "")]


def unbalanced(graph: "TableGraph") -> bool:
    """Whether a class has several times the training nodes of another."""
    if graph.schema.task == "regression":
        return False
    counts = torch.bincount(graph.data.y[graph.data.train_mask], minlength=len(graph.schema.classes))
    counts = counts[counts > 0]
    return bool(counts.max() >= UNBALANCED * counts.min())


def judged_by(graph: "TableGraph") -> str:
    """The metric that decides."""
    return "mse" if graph.schema.task == "regression" else decisive("accuracy", unbalanced(graph))


def base(tables: Tables, graph: "TableGraph", model: str) -> Experiment:
    """Settings that suit the graph and the model, before ``--set``."""
    experiment = own_starting_point(graph_name(tables), tables, graph.schema.task, model)
    if unbalanced(graph):
        experiment = replace(experiment, training=replace(experiment.training, class_weights=True))
    return experiment


def with_options(experiment: Experiment, assignments: Sequence[str]) -> Experiment:
    """The experiment with what ``--set`` sets, which cannot be how a graph is read that has been read."""
    changed = settings.override(experiment, assignments)
    if changed.tables != experiment.tables:
        raise SettingsError(
            f"--set {' '.join(assignments)} would read the graph in another way; use --target, --directed and the "
            "other options of a graph of yours."
        )
    return changed


def recording(experiment: Experiment, graph: "TableGraph", assignments: Sequence[str]) -> Experiment:
    """The experiment, which also keeps the order of some epochs if it learns one, unless ``--set`` decided that."""
    options, model = experiment.training, experiment.model
    sorts = any(kind.startswith("goat") for kind in model.kinds)
    held = options.fixed_ordering >= 0 or options.orderings_files
    decided = any(map(_records, assignments))
    if decided or held or not sorts or graph.data.num_edges * model.heads > MOST_RECORDED:
        return experiment
    epochs = tuple(epoch for epoch in RECORDED if epoch <= options.epochs)
    return replace(experiment, training=replace(options, record_orderings=epochs))


def _records(assignment: str) -> bool:
    return sets(assignment, "record_orderings")


def array_experiment(folder: Path, model: str | None, recipe: Path | None) -> Experiment:
    """The settings of a run on a folder of arrays before ``--set``, tied to their content."""
    data = open_graph(folder)
    if data.y is None:
        raise SettingsError(f"{folder} has no array y to predict.")
    name = _plain_name(folder.resolve().name)
    if recipe is None:
        experiment = own_starting_point(name, folder, task_of(data), model or "goat")
        return replace(experiment, graph_digest=digest(folder))
    if model is not None:
        raise SettingsError(f"the recipe {recipe} brings its own model; leave --model {model} out.")
    experiment = settings.read(Experiment, recipe)
    experiment = replace(experiment, dataset=name, split="masks", index=0, tables=None)
    return replace(experiment, graph=str(folder.resolve()), graph_digest=digest(folder))


def own_experiment(tables: Tables, graph: "TableGraph", model: str | None, recipe: Path | None) -> Experiment:
    """The settings of a single run before ``--set``: those of a recipe, or those that suit the model."""
    if recipe is None:
        return base(tables, graph, model or "goat")
    if model is not None:
        raise SettingsError(f"the recipe {recipe} brings its own model; leave --model {model} out.")
    experiment = settings.read(Experiment, recipe)
    experiment = replace(experiment, graph="", graph_digest=None)
    return replace(experiment, dataset=graph_name(tables), split=tables.split, index=0, tables=tables)


Runner = Callable[[Experiment, Path], Result]


def compare(
    tables: Tables, graph: "TableGraph", assignments: Sequence[str], repeats: int, out: Path | None, runner: Runner
) -> tuple[Path, Path, Path]:
    """Trains GOAT beside its rivals on the same splits and shows which wins.

    Args:
        tables: The tables.
        graph: What was read from them.
        assignments: What ``--set`` sets, for every model.
        repeats: On how many splits, or with how many seeds if a column decides the split.
        out: The folder of all runs; else one in ``runs/``.
        runner: Trains an experiment in a folder.

    Returns:
        The folder of the best run, that of the best of GOAT, and the one that holds all runs.
    """
    starts = {}
    for model in MODELS:
        own = tables if KINDS[model].edges else replace(tables, edge_features=False)
        asked = [one for one in assignments if model == "goat" or not _records(one)]  # the others have no order
        starts[model] = recording(_with_options_of(model, base(own, graph, model), asked), graph, asked)
    if tables.edge_features:
        say("Note: GraphSAGE reads no edge features.")
    root = out or Path("runs") / f"{graph_name(tables)}-{fingerprint(starts['goat'])}"
    runs: dict[str, list[Trained]] = {model: [] for model in MODELS}
    for repeat in range(repeats):
        for model, start in starts.items():
            index = start.index + repeat if tables.split == "random" else start.index
            experiment = replace(start, seed=start.seed + repeat, index=index)
            folder = root / f"{model}-{repeat}"
            runs[model].append(Trained(model, folder, runner(experiment, folder)))
    metric = judged_by(graph)
    _show_comparison(runs, metric, tables)
    winner = max(runs, key=lambda model: _sign(metric) * _summary(runs[model], "val", metric).mean)
    return _best(runs[winner], metric), _best(runs["goat"], metric), root


def _with_options_of(model: str, start: Experiment, assignments: Sequence[str]) -> Experiment:
    """The settings of a model of the comparison; what is no option of all of them is refused with what to do."""
    try:
        return with_options(start, assignments)
    except SettingsError as error:
        if model == "goat":  # the first, to which everything is an option that is one at all
            raise
        raise SettingsError(f"{error} Every model of a comparison takes it; --model goat trains one alone.") from None


def _best(runs: Sequence[Trained], metric: str) -> Path:
    """The folder of the run that is best on its validation nodes."""
    return max(runs, key=lambda run: _sign(metric) * run.result.metrics["val"][metric]).folder


def _sign(metric: str) -> int:
    return -1 if metric in LOWER_IS_BETTER else 1


def _summary(runs: Sequence[Trained], split: str, metric: str) -> Summary:
    return summarize([run.result.metrics[split][metric] for run in runs])


def _show_comparison(runs: dict[str, list[Trained]], metric: str, tables: Tables) -> None:
    names = list(runs["goat"][0].result.metrics["test"])
    rows = []
    for model, done in runs.items():
        cells = [_shown(_summary(done, "val", metric)), *(_shown(_summary(done, "test", name)) for name in names)]
        seconds = summarize([run.result.seconds for run in done]).mean
        rows.append([MODELS[model], *cells, f"{seconds:.1f}"])
    console().print(Aligned(["model", f"validation {metric}", *(f"test {name}" for name in names), "seconds"], rows))
    repeats = len(runs["goat"])
    what = "splits, a seed each" if tables.split == "random" else "seeds on the same split"
    say(f"Mean and standard deviation over {repeats} {what}." if repeats > 1 else "One run each.")
    say(verdict(runs, metric))


def verdict(runs: dict[str, list[Trained]], metric: str) -> str:
    """Which model is best on the validation nodes, and by how much it leads the second on the test nodes.

    Args:
        runs: The runs by model, as many of each.
        metric: What decides.
    """
    means = {model: _sign(metric) * _summary(done, "val", metric).mean for model, done in runs.items()}
    first, second = sorted(means, key=lambda model: -means[model])[:2]
    best, other = MODELS[first], MODELS[second]
    pairs = zip(runs[first], runs[second], strict=True)
    leads = [_sign(metric) * (a.result.metrics["test"][metric] - b.result.metrics["test"][metric]) for a, b in pairs]
    lead, ahead = summarize(leads).mean, sum(value > 0 for value in leads)
    text = f"{best} wins on the validation nodes."
    if means[first] == means[second]:
        text = f"{best} and {other} are level on the validation nodes; {best} is taken."
    test = f"{'ahead of' if lead > 0 else 'behind'} {other} by {abs(lead):.4g}" if lead else f"level with {other}"
    return f"{text} On the test nodes it is {test} in {metric} (ahead in {ahead} of {len(leads)})."


def _shown(summary: Summary) -> str:
    return f"{summary.mean:.4g}" + ("" if summary.std is None else f" ± {summary.std:.2g}")


def show_next(tables: Tables, graph: "TableGraph", best: Path, ordered: Path | None, whole: Path | None) -> None:
    """Prints the commands that follow, ready to be copied.

    Args:
        tables: The tables.
        graph: What was read from them.
        best: The run to go on with.
        ordered: A run whose model learned an order, if there is one.
        whole: The folder of all runs, if there are several.
    """
    degree = torch.bincount(graph.data.edge_index[1], minlength=graph.data.num_nodes)
    tests = graph.data.test_mask.nonzero().view(-1)
    node = graph.ids[int(tests[degree[tests].clamp(max=20).argmax()])]
    files = [_near(path) for path in (tables.nodes, tables.edges) if path]
    say("Next:")
    commands = [["predict", str(best), *files, "-o", "predictions.csv"]]
    if ordered is not None:
        commands.append(["explain", str(ordered), "--node", node])
    commands.append(["report", str(whole or best), "-o", "report.html"])
    for command in commands:
        say(f"  goat {shlex.join(command)}")


def _near(path: str) -> str:
    """A path as seen from here, if that is shorter."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def read_own(tables: Tables, index: int) -> "tuple[Tables, TableGraph]":
    """Reads the graph, says what it is, and ties the tables to their content."""
    graph = load_tables(tables, index)
    show_graph(tables, graph)
    if unbalanced(graph):
        say("Note: the classes are unbalanced; they weigh the same in the loss unless --set class_weights=false.")
    return replace(tables, digest=graph.digest), graph
