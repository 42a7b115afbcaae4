"""``goat pid``: what the neighbourhoods of a graph tell of its labels, part by part, and what models capture of it."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch_geometric.data import Data

from torch_goat import datasets
from torch_goat.cli.console import console, say, table
from torch_goat.cli.options import DataDir
from torch_goat.cli.progress import RunProgress
from torch_goat.datasets import DATASETS, NEIGHBORHOOD_TASKS
from torch_goat.information import (
    Decomposition,
    Estimate,
    Quantity,
    SmallSampleWarning,
    captured_information,
    decompose,
    estimate,
    predicted_classes,
    supported_bins,
)
from torch_goat.information.charts import bar_chart, check_format
from torch_goat.information.comparison import EPOCHS, MODELS, fitted, parameters
from torch_goat.models import ModelOptions, Network, build, degree_histogram
from torch_goat.search import starting_point
from torch_goat.settings import SettingsError, nearest
from torch_goat.training import Experiment, TrainingOptions, fit

GROUPS = ("roles", "features", "order", "random")
MEASURES, POOLS, VALUES = ("wb", "broja"), ("mean", "max"), ("", "features", "degree")
LEARNING_RATE = 0.01  # of the models on tasks of known information
CHANCE = 0.05  # the p-value above which no share is given
ORDER_EPOCHS = 200  # for which a GOAT layer learns its order

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
    Path | None, typer.Option("--chart", metavar="FILE", help="A .png, .svg or .pdf; else pid-DATASET.png.")
]
Models = Annotated[
    str | None,
    typer.Option(
        "--models", help="Train these, by comma, or all or none; all on tasks of known information, else none."
    ),
]


def pid(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A name that goat datasets lists.")],
    groups: Groups = "",
    measure: Annotated[str, typer.Option("--measure", help="wb (Williams and Beer) or broja (slower).")] = "wb",
    bins: Bins = 0,
    target_bins: TargetBins = None,
    values: Values = "",
    pool: Pool = "mean",
    models: Models = None,
    index: Annotated[int, typer.Option("--index", help="Which graph of a generated dataset, from 0.")] = 0,
    seed: Annotated[int, typer.Option("--seed", help="The seed of everything random.")] = 0,
    chart: Chart = None,
    data_dir: DataDir = None,
) -> None:
    """Measure how much of what neighbours tell of a label is unique, redundant or synergistic, in bits.

    Example: goat pid xor
    """
    groups = groups or ("roles" if dataset in NEIGHBORHOOD_TASKS else "features")
    chart = chart or Path(f"pid-{dataset}.png")
    _check(dataset, index, groups, bins, target_bins, chart)
    for option, value, known in (("measure", measure, MEASURES), ("pool", pool, POOLS), ("values", values, VALUES)):
        if value not in known:
            raise SettingsError(f"there is no {option} {value!r}{nearest(value, filter(None, known))}")
    names = _models(dataset, models)
    torch.set_num_threads(1)  # the networks are so small that a second one only waits
    data = datasets.load(dataset, index=index, data_dir=data_dir)
    exact = _exact(dataset, measure)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSampleWarning)  # it is printed with the estimate
        found = measured(
            dataset,
            data,
            groups=groups,
            measure=measure,
            bins=bins,
            target_bins=target_bins or 2,
            values=values,
            pool=pool,
            seed=seed,
        )
    _show_estimate(found, dataset, groups, by_degree(data, values))
    captured = {name: _captured(dataset, name, data, seed) for name in names}
    _show_captured(captured, exact.total if exact else None, dataset)
    parts = {name: (one.value, one.low, one.high) for name, one in _parts(found).items()}
    bar_chart(chart, f"What two groups of neighbours tell of the label: {dataset} ({groups})", parts, captured)
    say(f"The chart is in {chart}")


def _check(dataset: str, index: int, groups: str, bins: int, target_bins: int | None, chart: Path) -> None:
    """Refuses what cannot be done, before any work."""
    if dataset not in DATASETS:
        raise SettingsError(f"there is no dataset {dataset!r}{nearest(dataset, DATASETS)}")
    known = DATASETS[dataset]
    known.check(index=index)
    if groups not in GROUPS:
        raise SettingsError(f"there are no groups {groups!r}{nearest(groups, GROUPS)}")
    if groups == "roles" and dataset not in NEIGHBORHOOD_TASKS:
        raise SettingsError(f"--groups roles needs a task of known information, but {dataset} is none.")
    if groups == "roles" and bins:
        raise SettingsError(f"--bins {bins} has nothing to cut: what roles show is discrete; leave it out.")
    if groups == "order" and known.task != "classification":
        raise SettingsError(f"--groups order trains on classes, but {dataset} has real labels; choose other groups.")
    if target_bins is not None and known.task == "classification":
        raise SettingsError(f"--target-bins {target_bins} is for real labels, but {dataset} has classes; leave it out.")
    check_format(chart)
    if chart.exists():
        raise SettingsError(f"{chart} is there already; remove it or name another file with --chart.")


def _models(dataset: str, models: str | None) -> list[str]:
    """The models to train."""
    wanted = models if models is not None else ("all" if dataset in NEIGHBORHOOD_TASKS else "none")
    names = {"all": list(MODELS), "none": []}.get(wanted, wanted.split(","))
    for name in names:
        if name not in MODELS:
            raise SettingsError(f"there is no model {name!r}{nearest(name, MODELS)}")
    if names and DATASETS[dataset].task != "classification":
        raise SettingsError(
            f"captured information is that of classes, but {dataset} has real labels; leave --models out."
        )
    return names


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


def measured(
    dataset: str,
    data: Data,
    *,
    groups: str,
    measure: str = "wb",
    bins: int = 0,
    target_bins: int = 2,
    values: str = "",
    pool: str = "mean",
    seed: int = 0,
) -> Estimate:
    """The estimate on a dataset's graph, with what the command chooses where nothing is said.

    Args:
        dataset: The dataset's name.
        data: Its graph.
        groups: One of ``GROUPS``.
        measure: ``"wb"`` or ``"broja"``.
        bins: The symbols of a group; 0 is as many as the sample supports.
        target_bins: Into how many quantiles real labels are cut.
        values: ``"features"`` or ``"degree"``; ``""`` is the degree where the features only number the nodes.
        pool: ``"mean"`` or ``"max"``.
        seed: The seed.
    """
    options: dict[str, Any] = {"pool": pool, "measure": measure, "seed": seed}
    if data.y.is_floating_point():
        options["target_bins"] = target_bins
    if by_degree(data, values):
        options["values"] = torch.bincount(data.edge_index[1], minlength=data.num_nodes).float()
    if groups == "roles":
        return estimate(data, NEIGHBORHOOD_TASKS[dataset].groups(data), **options)
    classes = target_bins if data.y.is_floating_point() else int(data.y.max()) + 1
    options["bins"] = bins or supported_bins(int((data.y >= 0).sum()), classes)
    if groups == "order":
        options["ordering"] = _learned_order(dataset, data, seed)
    return estimate(data, groups, **options)  # type: ignore[arg-type]


def by_degree(data: Data, values: str) -> bool:
    """Whether a neighbour is known by its degree: as told, or because the features are the identity."""
    numbered = data.x.size(0) == data.x.size(1) and torch.equal(data.x, torch.eye(data.x.size(0)))
    return values == "degree" or (not values and numbered)


def _show_estimate(found: Estimate, dataset: str, groups: str, degree: bool) -> None:
    alphabet, what = " x ".join(map(str, found.alphabet)), "its degree" if degree else "its features"
    say(
        f"Estimated on {dataset}: {found.nodes} nodes, groups {groups}, a neighbour is known by {what}, {alphabet} "
        f"symbols, measure {found.measure}, bias corrected by {found.correction}:"
    )
    rows = [
        [name, f"{one.value:.3f}", f"{one.low:.3f} to {one.high:.3f}", f"{one.p_value:.3f}"]
        for name, one in _parts(found).items()
    ]
    console().print(table(["part", "bits", "95 % interval", "p"], rows))
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


def _network(options: ModelOptions, data: Data) -> Network:
    degree = degree_histogram(data.edge_index, data.num_nodes)
    return build(options, data.num_features, data.num_classes, degree=degree)


def _learned_order(dataset: str, data: Data, seed: int) -> Any:
    """The order in which the first layer of a trained GOAT reads the neighbours."""
    experiment = starting_point(dataset, "goat")
    torch.manual_seed(seed)
    network = _network(experiment.model, data)
    training = replace(experiment.training, epochs=ORDER_EPOCHS, patience=50)
    with RunProgress(f"{dataset} goat") as show:
        fit(network, data, training, seed=seed, device="cpu", observer=show)
    with torch.no_grad():
        _, orderings = network(data.x, data.edge_index, return_orderings=True)
    return orderings[0]


def _experiment(dataset: str, model: str, data: Data) -> Experiment:
    if dataset in NEIGHBORHOOD_TASKS:
        training = TrainingOptions(epochs=EPOCHS, learning_rate=LEARNING_RATE, weight_decay=0.0, patience=0)
        return Experiment(dataset, model=fitted(model, 1, data), training=training)
    start = starting_point(dataset, MODELS[model]["name"])
    return replace(start, model=replace(start.model, **MODELS[model]))


def _captured(dataset: str, model: str, data: Data, seed: int) -> float:
    """The information of a trained model's predictions on the test nodes."""
    experiment = _experiment(dataset, model, data)
    torch.manual_seed(seed)
    network = _network(experiment.model, data)
    with RunProgress(f"{dataset} {model}") as show:
        fit(network, data, experiment.training, seed=seed, device="cpu", observer=show)
    return captured_information(predicted_classes(network, data)[data.test_mask], data.y[data.test_mask])


def _show_captured(captured: dict[str, float], available: float | None, dataset: str) -> None:
    if not captured:
        return
    say(f"Captured by models on the test nodes, I(prediction; label), one seed{_budget(dataset)}:")
    columns = ["model", "captured (bits)"] + ([] if available is None else ["available (bits)"])
    shown = [] if available is None else [f"{available:.2f}"]
    console().print(table(columns, [[name, f"{bits:.2f}", *shown] for name, bits in captured.items()]))


def _budget(dataset: str) -> str:
    if dataset not in NEIGHBORHOOD_TASKS:
        return ""
    data = datasets.load(dataset)
    counts = [parameters(fitted(name, 1, data), data) for name in MODELS]
    return f", one layer, {min(counts)} to {max(counts)} parameters, {EPOCHS} epochs"
