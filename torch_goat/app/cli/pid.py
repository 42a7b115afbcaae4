"""``goat pid``: what the neighbourhoods of a graph tell of its labels, part by part, and what models capture of it."""

import warnings
from pathlib import Path
from typing import Annotated

import torch
import typer

from torch_goat.app.cli.console import Aligned, console, say
from torch_goat.app.cli.options import DataDir, Edges, Given, reads_tables
from torch_goat.app.cli.own import check_there, is_own, make_tables
from torch_goat.app.cli.subject import Subject, by_degree, captured, measured, named, own
from torch_goat.data import datasets
from torch_goat.data.datasets import DATASETS, NEIGHBORHOOD_TASKS
from torch_goat.experiments.information import Decomposition, Estimate, Quantity, SmallSampleWarning, decompose
from torch_goat.experiments.information.captured import EPOCHS, MODELS, fitted, parameters
from torch_goat.experiments.information.charts import bar_chart, new_figure
from torch_goat.settings import SettingsError, nearest

GROUPS = ("roles", "features", "order", "random")
MEASURES, POOLS, VALUES = ("wb", "broja"), ("mean", "max"), ("", "features", "degree")
CHANCE = 0.05  # the p-value above which no share is given

Groups = Annotated[
    str,
    typer.Option(
        "--groups",
        help="The two groups of neighbours: features (two clusters; the default), order (the first by a GOAT layer, "
        "trained for this, against the rest), random (halves), roles (the default of tasks of known information).",
    ),
]
Bins = Annotated[int, typer.Option("--bins", min=0, help="Symbols of a group; 0 is as many as the sample supports.")]
TargetBins = Annotated[
    int | None, typer.Option("--target-bins", min=2, help="Into how many quantiles real labels are cut; 2 unless set.")
]
Values = Annotated[str, typer.Option("--values", help="What to know of a neighbour: features, or its degree.")]
Pool = Annotated[str, typer.Option("--pool", help="What of a group is taken: mean or max.")]
Chart = Annotated[
    Path | None,
    typer.Option(
        "--chart", metavar="FILE", help="A .png, .svg or .pdf; else pid-DATASET.png, with other groups their name."
    ),
]
Models = Annotated[
    str | None,
    typer.Option(
        "--models", help="Train these, by comma, or all or none; all on tasks of known information, else none."
    ),
]


@reads_tables("edge_features", "split_column", "time_column", "fractions")
def pid(
    *,
    given: Given,
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET|NODES",
            help="A name that goat datasets lists, or the nodes of a graph of yours: a CSV or Parquet file, a GraphML "
            "file, or a folder with both tables.",
        ),
    ],
    edges: Edges = "",
    groups: Groups = "",
    measure: Annotated[str, typer.Option("--measure", help="wb (Williams and Beer) or broja (slower).")] = "wb",
    bins: Bins = 0,
    target_bins: TargetBins = None,
    values: Values = "",
    pool: Pool = "mean",
    models: Models = None,
    index: Annotated[int, typer.Option("--index", min=0, help="Which graph of a generated dataset, from 0.")] = 0,
    seed: Annotated[int, typer.Option("--seed", help="The seed of everything random.")] = 0,
    chart: Chart = None,
    data_dir: DataDir = None,
) -> None:
    """Measure how much of what neighbours tell of a label is unique, redundant or synergistic, in bits.

    Example: goat pid xor; goat pid nodes.csv edges.csv --target label
    """
    groups = groups or _usual(dataset)
    for option, value, known in (
        ("groups", groups, GROUPS),
        ("measure", measure, MEASURES),
        ("pool", pool, POOLS),
        ("values", values, VALUES),
    ):
        if value not in known:
            raise SettingsError(f"there is no --{option} {value}{nearest(value, filter(None, known))}")
    trained = _models(models if models is not None else "all" if dataset in NEIGHBORHOOD_TASKS else "none")
    if is_own(dataset, edges):
        subject = own(make_tables(dataset, edges, **given.values), index)
        chart = _check(subject.name, subject.real, groups, bins, target_bins, trained, chart)
    else:
        _check_named(dataset, index, given.options)
        real = DATASETS[dataset].task != "classification"
        chart = _check(dataset, real, groups, bins, target_bins, trained, chart)
        subject = named(dataset, index, data_dir)
    torch.set_num_threads(1)  # the networks are so small that a second one only waits
    exact = _exact(subject.name, measure)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSampleWarning)  # it is printed with the estimate
        try:
            found = measured(
                subject,
                groups=groups,
                measure=measure,
                bins=bins,
                target_bins=target_bins or 2,
                values=values,
                pool=pool,
                seed=seed,
            )
        except ValueError as error:  # a graph that such options cannot measure
            raise SettingsError(str(error)) from error
    _show_estimate(found, subject, groups, by_degree(subject.data, values))
    bits = {name: captured(subject, name, seed) for name in trained}
    _show_captured(bits, exact.total if exact else None, subject.name)
    parts = {name: (one.value, one.low, one.high) for name, one in _parts(found).items()}
    bar_chart(chart, f"What two groups of neighbours tell of the label: {subject.name} ({groups})", parts, bits)
    say(f"The chart is in {chart}")


def _usual(dataset: str) -> str:
    """The groups that are compared where none are named."""
    return "roles" if dataset in NEIGHBORHOOD_TASKS else "features"


def _models(wanted: str) -> list[str]:
    """The models to train."""
    names = {"all": list(MODELS), "none": []}.get(wanted, wanted.split(","))
    for name in names:
        if name not in MODELS:
            kinds = [known for known in MODELS if known.startswith(f"{name}-")]  # "goat" is nearer to "gat" by letters
            meant = f"; there are {', '.join(kinds)}." if kinds else nearest(name, MODELS)
            raise SettingsError(f"there is no model {name!r}{meant}")
    return names


def _check_named(dataset: str, index: int, columns: list[str]) -> None:
    """Refuses a dataset that is not there, and options of tables beside one that is."""
    check_there(dataset, columns)
    if dataset not in DATASETS:
        raise SettingsError(f"there is no dataset {dataset!r}{nearest(dataset, DATASETS)}")
    DATASETS[dataset].check(index=index)


def _check(
    name: str, real: bool, groups: str, bins: int, target_bins: int | None, models: list[str], chart: Path | None
) -> Path:
    """Refuses what cannot be done, before any work; returns the file of the chart."""
    if groups == "roles" and name not in NEIGHBORHOOD_TASKS:
        raise SettingsError(f"--groups roles needs a task of known information, but {name} is none.")
    if groups == "roles" and bins:
        raise SettingsError(f"--bins {bins} has nothing to cut: what roles show is discrete; leave it out.")
    if groups == "order" and real:
        raise SettingsError(f"--groups order trains on classes, but {name} has real labels; choose other groups.")
    if target_bins is not None and not real:
        raise SettingsError(f"--target-bins {target_bins} is for real labels, but {name} has classes; leave it out.")
    if models and real:
        raise SettingsError(f"captured information is that of classes, but {name} has real labels; leave --models out.")
    chart = chart or Path(f"pid-{name}{'' if groups == _usual(name) else f'-{groups}'}.png")
    new_figure(chart)  # checks the file ending and that matplotlib is installed
    if chart.exists():
        raise SettingsError(f"{chart} is there already; remove it or name another file with --chart.")
    return chart


def _exact(dataset: str, measure: str) -> Decomposition | None:
    """The decomposition that is known, printed; ``None`` of a dataset without one."""
    if dataset not in NEIGHBORHOOD_TASKS:
        return None
    exact = decompose(NEIGHBORHOOD_TASKS[dataset].distribution(), measure=measure)  # type: ignore[arg-type]
    say(f"What the informative neighbours of {dataset} tell, known exactly ({measure}), the first against the others:")
    for line in str(exact).splitlines():
        say(f"  {line}")
    first, second = exact.unique
    say(
        f"unique {first:.1f} + {second:.1f}, redundancy {exact.redundancy:.1f}, synergy {exact.synergy:.1f} bit of "
        f"{exact.total:.1f} bit; who looks at one source at a time counts {exact.counted:.1f} bit."
    )
    return exact


def _show_estimate(found: Estimate, subject: Subject, groups: str, degree: bool) -> None:
    alphabet, what = " x ".join(map(str, found.alphabet)), "its degree" if degree else "its features"
    say(
        f"Estimated on {subject.name}: {found.nodes} nodes, groups {groups}, a neighbour is known by {what}, "
        f"{alphabet} symbols, measure {found.measure}, bias corrected by {found.correction}:"
    )
    rows = [
        [name, f"{one.value:.3f}", f"{one.low:.3f} to {one.high:.3f}", f"{one.p_value:.3f}"]
        for name, one in _parts(found).items()
    ]
    console().print(Aligned(["part", "bits", "95 % interval", "p"], rows))
    total, synergy = found.total, found.synergy
    if total.p_value > CHANCE:
        say(f"What these groups tell of the label cannot be told from chance (p = {total.p_value:.3f}).")
    else:
        say(
            f"synergy: {synergy.value:.3f} bit of {total.value:.3f} bit ({100 * synergy.value / total.value:.0f} %); "
            f"who looks at one group at a time counts {found.counted:.3f} bit."
        )
    if found.warning:
        say(f"Warning: {found.warning}")


def _parts(found: Estimate) -> dict[str, Quantity]:
    first, second = found.unique
    return {
        "unique 1": first,
        "unique 2": second,
        "redundancy": found.redundancy,
        "synergy": found.synergy,
        "total": found.total,
    }


def _show_captured(captured: dict[str, float], available: float | None, dataset: str) -> None:
    if not captured:
        return
    say(f"Captured by models on the test nodes, I(prediction; label), one seed{_budget(dataset)}:")
    columns = ["model", "captured (bits)"] + ([] if available is None else ["available (bits)"])
    shown = [] if available is None else [f"{available:.2f}"]
    console().print(Aligned(columns, [[name, f"{bits:.2f}", *shown] for name, bits in captured.items()]))


def _budget(dataset: str) -> str:
    if dataset not in NEIGHBORHOOD_TASKS:
        return ""
    data = datasets.load(dataset)
    counts = [parameters(fitted(name, 1, data), data) for name in MODELS]
    return f", one layer, {min(counts)} to {max(counts)} parameters, {EPOCHS} epochs"
