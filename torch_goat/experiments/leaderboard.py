"""The plan of a comparison: which models fit into a time budget and into memory, after a short trial of each."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import torch

from torch_goat import settings
from torch_goat.experiments.models.kinds import KINDS
from torch_goat.experiments.run import RunError, usable
from torch_goat.experiments.training.features import FittedModel, import_for
from torch_goat.experiments.training.loop import Loop
from torch_goat.experiments.training.metrics import duration
from torch_goat.experiments.training.options import Experiment
from torch_goat.experiments.training.processes import make_fabric
from torch_goat.experiments.training.result import PeakMemory, bytes_in
from torch_goat.experiments.training.task import Task
from torch_goat.experiments.training.threads import threads_for
from torch_goat.experiments.training.train import build_network
from torch_goat.experiments.verdict import shown
from torch_goat.files import no_link, replace_file
from torch_goat.settings import SettingsError

if TYPE_CHECKING:
    from torch_goat.data.tables.graph import TableGraph

PLAN: Final = "plan.json"
TRIAL_SHARE: Final = 0.25  # of the time budget, after which no further model is tried
TRIAL_EPOCHS: Final = 3  # of which the first compiles kernels and is not counted
START_SECONDS: Final = 0.1  # of a run, besides its epochs
BATCH_SIZE: Final = 1024  # of mini-batches, where full batches do not fit
FANOUT: Final = (15, 10)
MEMORY_SHARE: Final = 0.7  # of the free memory that full batches may use
_COPIES: Final = {"goat": 10, "goat-paper": 10, "gat": 5, "gatv2": 6, "mlp": 0}  # of a layer's states, per edge


@dataclass(frozen=True)
class PlannedModel:
    """A model of a plan."""

    experiment: Experiment  # without its split and seed
    seconds: float  # expected time of a run
    most: float  # time of a run that trains for all epochs
    memory: int  # peak memory in bytes; 0 if unknown


@dataclass(frozen=True)
class Plan:
    """What a comparison trains, as in ``plan.json``: every model on every repetition."""

    minutes: float  # the time budget; 0 for none
    repetitions: tuple[tuple[int, int], ...]  # split and number of the seed
    models: dict[str, PlannedModel]  # in the order of training, the fastest first
    skipped: dict[str, float]  # models that do not fit, with the expected seconds of a run; 0 if they were not tried
    request: str = ""  # identifies what was asked for, so that the same request repeats the same plan

    @property
    def runs(self) -> int:
        return len(self.models) * len(self.repetitions)

    @property
    def seconds(self) -> float:
        """The expected time of all runs."""
        return len(self.repetitions) * sum(model.seconds for model in self.models.values())

    @property
    def most(self) -> float:
        """The time of all runs if none stops early."""
        return len(self.repetitions) * sum(model.most for model in self.models.values())

    @property
    def memory(self) -> int:
        """The peak memory of the largest model, in bytes."""
        return max((model.memory for model in self.models.values()), default=0)

    def __iter__(self) -> Iterator[tuple[str, int, Experiment]]:
        """The runs in order: the model, the number of the repetition and the experiment."""
        for number, (split, repeat) in enumerate(self.repetitions):
            for name, model in self.models.items():
                yield name, number, replace(model.experiment, seed=model.experiment.seed + repeat, index=split)

    def to_json(self) -> str:
        return json.dumps(settings.to_table(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        return settings.parse(cls, json.loads(text), PLAN)


def make_plan(
    starts: Mapping[str, Experiment],
    repetitions: Sequence[tuple[int, int]],
    graphs: Mapping[str, "TableGraph"],
    *,
    minutes: float,
    device: str = "auto",
    batches: bool = True,
    request: str = "",
    on_trial: Callable[[str, int, int], None] = lambda model, number, total: None,
) -> Plan:
    """Plans a comparison after a trial of each model.

    The fastest models come first, until the budget is used up; the others are skipped. A run is expected to take twice
    its patience in epochs. The time of the trials counts: simple models are tried first, and once the trials have taken
    a quarter of the budget, the remaining models are skipped without a trial.

    Args:
        starts: The models' experiments, without split and seed.
        repetitions: The split and the number of the seed of each run of a model.
        graphs: The graph of each model.
        minutes: The time budget; 0 for none.
        device: As in :func:`train`.
        batches: Whether mini-batches may replace full batches that do not fit in memory.
        request: What :attr:`Plan.request` is to be.
        on_trial: Called before each trial with the model, the number of the trial from 1, and the number of models.
    """
    begun, least = monotonic(), START_SECONDS * len(repetitions)
    if minutes and 60 * minutes < least:
        raise _too_short(minutes, f"{len(repetitions)} runs of any model need at least {duration(least)}")
    tried: dict[str, PlannedModel] = {}
    by_kind = sorted(starts, key=list(KINDS).index)
    for number, name in enumerate(by_kind, start=1):
        if minutes and tried.keys() - {"constant"} and monotonic() - begun >= TRIAL_SHARE * 60 * minutes:
            break
        on_trial(name, number, len(starts))
        tried[name] = _try(starts[name], graphs[name], device, batches)
    left = 60 * minutes - (monotonic() - begun) if minutes else math.inf
    ordered = sorted((name for name in starts if name in tried), key=lambda name: tried[name].seconds)
    chosen: dict[str, PlannedModel] = {}
    for name in ordered:
        cost = len(repetitions) * tried[name].seconds
        if cost <= left:
            chosen[name] = tried[name]
            left -= cost
    learning = [name for name in ordered if name != "constant"]
    if learning and chosen.keys().isdisjoint(learning):
        fastest = learning[0]
        name = shown(fastest, "mse" if graphs[fastest].schema.task == "regression" else "")
        needed = len(repetitions) * tried[fastest].seconds + monotonic() - begun
        raise _too_short(minutes, f"{name}, the fastest model that learns, needs about {duration(needed)}")
    skipped = {name: tried[name].seconds for name in ordered if name not in chosen}
    skipped |= dict.fromkeys((name for name in by_kind if name not in tried), 0.0)
    return Plan(minutes, tuple(repetitions), chosen, skipped, request)


def _too_short(minutes: float, why: str) -> SettingsError:
    return SettingsError(f"--minutes {minutes:g} is too short: {why}; allow more, or set --minutes 0 for no limit.")


def saved_plan(folder: Path) -> Plan | None:
    """The plan in a folder, if there is one."""
    path = folder / PLAN
    if not path.exists():
        return None
    with usable(folder):
        text = path.read_bytes()
    try:
        return Plan.from_json(text.decode())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is damaged or from another version; remove it to plan again.") from error


def save_plan(folder: Path, plan: Plan) -> None:
    """Writes a plan into a folder, which is created if needed."""
    with usable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(no_link(folder / PLAN), plan.to_json())


def _try(start: Experiment, graph: "TableGraph", device: str, batches: bool) -> PlannedModel:
    """Trains a model for a few epochs, in memory; in mini-batches if full ones do not fit."""
    small = start.model.fitted or start.training.batch_size > 0 or not batches
    place = make_fabric(device, start.training.precision).device
    if not small and full_batch_bytes(start, graph) > MEMORY_SHARE * free_memory(place):
        start, small = _in_batches(start, graph), True
    try:
        return _timed(start, graph, device)
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if small or "memory" not in str(error):
            raise
    if place.type == "cuda":
        torch.cuda.empty_cache()
    return _timed(_in_batches(start, graph), graph, device)


def _timed(start: Experiment, graph: "TableGraph", device: str) -> PlannedModel:
    options = start.training
    fabric = make_fabric(device, options.precision)
    devices = [fabric.device] if fabric.device.type == "cuda" else []
    with threads_for(graph.data.num_edges), torch.random.fork_rng(devices):
        torch.manual_seed(start.seed)
        task = Task(graph.data, fabric.device, class_weights=options.class_weights, metric=start.metric)
        network, memory = build_network(start, graph.data, task), PeakMemory(fabric.device)
        if start.model.fitted:
            import_for(start.model.name)
            times: list[float] = []
            while len(times) < 2 and sum(times) < 1:  # seconds: what only the first fit needs shows in short ones
                model = FittedModel(network, task, options, fabric, trial=True)
                times.append(model.epochs[0].seconds)
            seconds = START_SECONDS + min(times) * model.trial_factor
            return PlannedModel(start, seconds, seconds, memory.read())
        short = replace(options, epochs=TRIAL_EPOCHS, patience=0, record_orderings=(), order_noise_end=None)
        times = [epoch.seconds for epoch in Loop(network, task, short, fabric, seed=start.seed)]
    each = min(times[1:], default=times[0])
    expected = min(options.epochs, 2 * options.patience or options.epochs)
    return PlannedModel(start, START_SECONDS + expected * each, START_SECONDS + options.epochs * each, memory.read())


def _in_batches(start: Experiment, graph: "TableGraph") -> Experiment:
    size = min(BATCH_SIZE, int(graph.data.train_mask.sum()))
    layers = start.model.num_layers
    fanout = (*FANOUT, *[FANOUT[-1]] * layers)[:layers]
    return replace(start, training=replace(start.training, batch_size=size, fanout=fanout, record_orderings=()))


def full_batch_bytes(start: Experiment, graph: "TableGraph") -> float:
    """A rough estimate of the memory that an epoch on the whole graph needs."""
    model, data = start.model, graph.data
    width = model.hidden_channels * (model.heads if "heads" in KINDS[model.name].reads else 1)
    states = model.num_layers * width * (8 * data.num_nodes + _COPIES.get(model.name, 3) * data.num_edges)
    return 4.0 * (2 * data.num_nodes * data.num_features + states)


def free_memory(device: torch.device) -> float:
    """The free memory of a device in bytes; infinite if it is unknown."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    available = bytes_in("/proc/meminfo", "MemAvailable")
    free = math.inf if available is None else float(available)
    with suppress(OSError, ValueError):  # no limit
        most, used = (float(Path("/sys/fs/cgroup", name).read_text()) for name in ("memory.max", "memory.current"))
        free = min(free, most - used)
    return free


def request_of(starts: Mapping[str, Experiment], repetitions: Sequence[tuple[int, int]], more: Any) -> str:
    """Identifies a request for a comparison."""
    text = json.dumps([{name: settings.to_table(one) for name, one in starts.items()}, list(repetitions), more])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
