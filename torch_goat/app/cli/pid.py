import re
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torch_goat.app.cli.console import Aligned, announce, console, say
from torch_goat.app.cli.options import DataDir, Edges, Given, check_known, reads_tables
from torch_goat.app.cli.progress import RunProgress
from torch_goat.app.cli.start import check_exists, is_own, make_tables, read_graph
from torch_goat.data import datasets
from torch_goat.data.datasets import DATASETS, NEIGHBORHOOD_TASKS
from torch_goat.lazy import lazy_module
from torch_goat.settings import SettingsError, nearest

if TYPE_CHECKING:
    from torch_goat.experiments import information
    from torch_goat.experiments.information import Decomposition, Estimate, PooledColumn, Quantity, captured, charts
    from torch_goat.experiments.information.labelled_graph import LabelledGraph
else:
    information = lazy_module("torch_goat.experiments.information")
    captured = lazy_module("torch_goat.experiments.information.captured")
    charts = lazy_module("torch_goat.experiments.information.charts")

CHOICES = {
    "groups": ("roles", "features", "order", "random"),
    "measure": ("wb", "broja"),
    "pool": ("mean", "max", "sum"),
    "values": ("", "features", "degree"),
}
CHANCE = 0.05  # the p-value above which information counts as chance
COLUMNS = 5  # single columns that are shown


@reads_tables
def pid(
    *,
    given: Given,
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET|NODES",
            help="A dataset listed by goat datasets, or the nodes of your own graph: a CSV or Parquet file, a GraphML "
            "file, or a folder with both tables.",
        ),
    ],
    edges: Edges = "",
    groups: Annotated[
        str,
        typer.Option(
            help="Groups of neighbours: features (two clusters; default), order (first against the rest, in the order "
            "of --order-by or of a trained GOAT layer), random (halves), roles (default for tasks of known "
            "information)."
        ),
    ] = "",
    measure: Annotated[str, typer.Option(help="wb (Williams and Beer) or broja (slower).")] = "wb",
    bins: Annotated[int, typer.Option(min=0, help="Symbols per group; 0 for as many as the sample supports.")] = 0,
    target_bins: Annotated[int | None, typer.Option(min=2, help="Quantiles for real labels; 2 by default.")] = None,
    values: Annotated[str, typer.Option(help="What describes a neighbour: features or degree.")] = "",
    pool: Annotated[str, typer.Option(help="How a group is pooled: mean, max or sum.")] = "mean",
    models: Annotated[
        str | None,
        typer.Option(
            help="Models to train, separated by commas, or all, or none; all by default for tasks of known information."
        ),
    ] = None,
    index: Annotated[int, typer.Option(min=0, help="Which graph or split, from 0.")] = 0,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Output .png, .svg or .pdf; by default pid-DATASET[-TARGET][-GROUPS].png."),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Measure how much of the neighbours' information about a label is unique, redundant or synergistic, in bits.

    Example: goat pid xor; goat pid nodes.csv edges.csv --target label
    """
    groups = groups or _default_groups(dataset)
    for option, value in {"groups": groups, "measure": measure, "pool": pool, "values": values}.items():
        if value not in CHOICES[option]:
            raise SettingsError(f"there is no --{option} {value}{nearest(value, CHOICES[option])}")
    own = is_own(dataset, edges)
    if own:
        tables = make_tables(dataset, edges, **given.values)
        announce(tables.nodes, tables.edges)
    else:
        check_exists(dataset, given.options)
        check_known("dataset", dataset, DATASETS)
        DATASETS[dataset].check(index=index)
        announce(f"the dataset {dataset}")
    import torch

    from torch_goat.experiments.information.labelled_graph import LabelledGraph

    trained = _models(models if models is not None else "all" if dataset in NEIGHBORHOOD_TASKS else "none")
    if own:
        graph = LabelledGraph.from_tables(tables, read_graph(tables, index))
        chart = chart or _default_chart(graph.name, tables.target, groups)
        _check(graph.name, graph.regression, groups, bins, target_bins, trained, chart)
    else:
        real = DATASETS[dataset].task != "classification"
        chart = chart or _default_chart(dataset, "", groups)
        _check(dataset, real, groups, bins, target_bins, trained, chart)
        graph = LabelledGraph.from_dataset(dataset, index, data_dir)
    torch.set_num_threads(1)  # the networks are too small for more
    exact = _exact(graph.name, measure)
    settled = {"measure": measure, "values": values, "pool": pool}
    progress = RunProgress(f"{graph.name} goat") if groups == "order" else nullcontext()
    with warnings.catch_warnings(), progress as show:
        warnings.simplefilter("ignore", information.SmallSampleWarning)  # printed with the estimate
        try:
            found = graph.measure(groups, bins=bins, target_bins=target_bins or 2, seed=seed, observer=show, **settled)
        except ValueError as error:  # a graph that these options cannot measure
            raise SettingsError(str(error)) from error
    _show_estimate(found, graph, groups, values)
    if graph.name not in NEIGHBORHOOD_TASKS:
        _show_columns(graph.pooled_columns(target_bins=target_bins or 2))
    bits = {}
    for name in trained:
        with RunProgress(f"{graph.name} {name}") as show:
            bits[name] = graph.captured(name, seed, show)
    _show_captured(bits, exact.total if exact else None, graph.name)
    parts = {name: (one.value, one.low, one.high) for name, one in _parts(found).items()}
    title = f"Information of two groups of neighbours about the label: {graph.name} ({groups})"
    charts.bar_chart(chart, title, parts, bits)
    say(f"The chart is in {chart}")


def _default_groups(dataset: str) -> str:
    return "roles" if dataset in NEIGHBORHOOD_TASKS else "features"


def _models(wanted: str) -> list[str]:
    """The models to train."""
    known = captured.MODELS
    names = {"all": list(known), "none": []}.get(wanted, wanted.split(","))
    for name in names:
        if name not in known:
            kinds = [one for one in known if one.startswith(f"{name}-")]  # the nearest name to "goat" is "gat"
            meant = f"; choose one of {', '.join(kinds)}." if kinds else nearest(name, known)
            raise SettingsError(f"there is no model {name!r}{meant}")
    return names


def _default_chart(name: str, target: str, groups: str) -> Path:
    parts = ["pid", name, re.sub(r"[^\w-]+", "-", target)[:60], "" if groups == _default_groups(name) else groups]
    return Path("-".join(filter(None, parts)) + ".png")


def _check(
    name: str, real: bool, groups: str, bins: int, target_bins: int | None, models: list[str], chart: Path
) -> None:
    """Refuses what cannot be done, before any work."""
    if groups == "roles" and name not in NEIGHBORHOOD_TASKS:
        raise SettingsError(f"--groups roles needs a task of known information, which {name} is not.")
    if groups == "roles" and bins:
        raise SettingsError(f"--bins {bins} does not apply to --groups roles, whose values are discrete; leave it out.")
    if groups == "order" and real:
        raise SettingsError(f"--groups order needs classes, but {name} has real labels; choose other groups.")
    if target_bins is not None and not real:
        raise SettingsError(f"--target-bins {target_bins} is for real labels, but {name} has classes; leave it out.")
    if models and real:
        raise SettingsError(f"--models needs classes, but {name} has real labels; leave it out.")
    charts.new_figure(chart)  # checks the file ending and that matplotlib is installed
    if chart.exists():
        raise SettingsError(f"{chart} already exists; remove it or name another file with --chart.")


def _exact(dataset: str, measure: str) -> "Decomposition | None":
    """Prints the exact decomposition if it is known."""
    if dataset not in NEIGHBORHOOD_TASKS:
        return None
    exact = information.decompose(NEIGHBORHOOD_TASKS[dataset].distribution(), measure=measure)  # type: ignore[arg-type]
    say(f"Exact information of the informative neighbours of {dataset} ({measure}), the first against the others:")
    for line in str(exact).splitlines():
        say(f"  {line}")
    first, second = exact.unique
    say(
        f"unique {first:.1f} + {second:.1f}, redundancy {exact.redundancy:.1f}, synergy {exact.synergy:.1f} bit of "
        f"{exact.total:.1f} bit; counting one source at a time gives {exact.counted:.1f} bit."
    )
    return exact


def _show_estimate(found: "Estimate", graph: "LabelledGraph", groups: str, values: str) -> None:
    alphabet, what = " x ".join(map(str, found.alphabet)), "degree" if graph.uses_degree(values) else "features"
    say(
        f"Estimated on {graph.name}: {found.nodes} nodes, groups {groups}, neighbours described by their {what}, "
        f"{alphabet} symbols, measure {found.measure}, bias corrected by {found.correction}:"
    )
    rows = [
        [name, f"{one.value:.3f}", f"{one.low:.3f} to {one.high:.3f}", f"{one.p_value:.3f}"]
        for name, one in _parts(found).items()
    ]
    console().print(Aligned(["part", "bits", "95 % interval", "p"], rows))
    total, synergy = found.total, found.synergy
    if total.p_value > CHANCE:
        say(f"The information of these groups about the label is not significant (p = {total.p_value:.3f}).")
    else:
        say(
            f"synergy: {synergy.value:.3f} bit of {total.value:.3f} bit ({100 * synergy.value / total.value:.0f} %); "
            f"counting one group at a time gives {found.counted:.3f} bit."
        )
    if found.warning:
        say(f"Warning: {found.warning}")


def _show_columns(columns: list["PooledColumn"]) -> None:
    telling = [one for one in columns if one.p_value <= CHANCE]
    if telling:
        say(f"Single columns of the neighbours that tell something about the label, {len(telling)} of {len(columns)}:")
        rows = [[f"{one.pool} of {one.column}" if one.pool else one.column, f"{one.bits:.3f}",
                 f"{one.p_value:.3g}"] for one in telling[:COLUMNS]]  # fmt: skip
        console().print(Aligned(["of the neighbours", "bits", "p"], rows))
        first = telling[0]
        what = f"the {first.pool} of {first.column!r}" if first.pool else f"the {first.column}"
        found = f"{first.bits:.3f} bit (p = {first.p_value:.3g})"
        say(f"The most informative of these is {what} of the neighbours: {found}.")
    else:
        say("No single column of the neighbours has a significant mean, maximum, minimum or sum.")
    say(
        "Not measured: combinations of several columns, neighbours of neighbours, an order of more than the first "
        "neighbour, and what a node's own columns already tell. Columns that are not significant can still help a "
        "model."
    )


def _parts(found: "Estimate") -> dict[str, "Quantity"]:
    names = ("unique 1", "unique 2", "redundancy", "synergy", "total")
    return dict(zip(names, (*found.unique, found.redundancy, found.synergy, found.total), strict=True))


def _show_captured(bits_of: dict[str, float], available: float | None, dataset: str) -> None:
    if not bits_of:
        return
    budget = ""
    if dataset in NEIGHBORHOOD_TASKS:
        data = datasets.load(dataset)
        counts = [captured.parameters(captured.fitted(name, 1, data), data) for name in captured.MODELS]
        budget = f", one layer, {min(counts)} to {max(counts)} parameters, {captured.EPOCHS} epochs"
    say(f"Captured by models on the test nodes, I(prediction; label), one seed{budget}:")
    columns = ["model", "captured (bits)"] + ([] if available is None else ["available (bits)"])
    shown = [] if available is None else [f"{available:.2f}"]
    console().print(Aligned(columns, [[name, f"{bits:.2f}", *shown] for name, bits in bits_of.items()]))
