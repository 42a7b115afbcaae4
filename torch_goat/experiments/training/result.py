import json
import math
import platform
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import torch_goat
from torch_goat import settings
from torch_goat.experiments.training.decisions import Decision, decide
from torch_goat.experiments.training.processes import fabric_version
from torch_goat.lazy import lazy_module

if TYPE_CHECKING:
    import torch

    from torch_goat.experiments.training.features import FittedModel
    from torch_goat.experiments.training.loop import Loop
else:
    torch = lazy_module("torch")
Stopped = Literal["", "epochs", "patience", "diverged"]
_BY_SPLIT: Final = {"metrics", "calibration", "at_threshold"}  # tables of numbers by split


class Epoch(NamedTuple):
    """Losses and metrics of one epoch. The training loss is measured before each step, with dropout."""

    number: int  # from 1
    total: int  # the maximum number of epochs
    metric: str  # the name of the metric
    train_loss: float
    val_loss: float
    train_metric: float
    val_metric: float
    test_metric: float
    seconds: float


@dataclass(frozen=True)
class Result:
    """The result of a training run, as in ``result.json``."""

    #: The metrics of each split with the best weights: ``result.metrics["test"]["accuracy"]``.
    metrics: dict[str, dict[str, float]]
    best_epoch: int  #: The epoch of the best validation, whose weights were kept.
    epochs: int  #: The number of epochs.
    stopped: Stopped  #: Why training ended: ``"epochs"``, ``"patience"`` or ``"diverged"``.
    seconds: float  #: The time of all epochs.
    seconds_per_epoch: float  #: The median time of an epoch.
    peak_memory_bytes: int  #: The peak memory: allocated by PyTorch on a GPU, that of the whole process on a CPU.
    device: str  #: The device's name.
    versions: dict[str, str]  #: Of Python and the packages.
    #: The commit of this package's checkout, with ``-dirty`` if files differ from it; empty without one.
    commit: str
    #: The temperature by which class scores are divided, so that the validation nodes agree with their probabilities;
    #: 1 if they do so anyway. ``None`` for regression and for runs of earlier versions.
    temperature: float | None = None
    #: The probability from which on the second of two classes is predicted; ``None``: the most probable class.
    threshold: float | None = None
    #: ``error_before``, ``error_after`` (expected calibration errors), ``log_loss_before`` and ``log_loss_after`` of
    #: each split, before and after calibration.
    calibration: dict[str, dict[str, float]] | None = None
    #: With a threshold, ``precision`` and ``recall`` of the second class, and the shares of nodes that are ``missed``
    #: and ``false`` positives, of each split.
    at_threshold: dict[str, dict[str, float]] | None = None
    nodes: dict[str, int] = field(default_factory=dict)  #: The number of nodes of each split, if recorded.

    @property
    def decision(self) -> Decision:
        """How scores become probabilities and a class."""
        return Decision(1.0 if self.temperature is None else self.temperature, self.threshold)

    @classmethod
    def of(cls, loop: "Loop | FittedModel", peak_memory_bytes: int) -> "Result":
        """The result of a loop, with its best weights."""
        import torch_geometric

        seconds, device = [epoch.seconds for epoch in loop.epochs], loop.fabric.device
        out, layers = loop.predict(), getattr(loop.network, "num_orderings", 0)
        key = loop.task.data.get("key")  # of the nodes in an order task
        hidden = torch.is_tensor(key) and key.is_floating_point() and key.shape == (loop.task.data.num_nodes,)
        orderings = loop.orderings() if layers and hidden else []  # type: ignore[union-attr]  # fitted: no layers
        made = decide(loop.task.parts(out), loop.options.threshold) if loop.task.classification else None
        cpu = f"{platform.machine()} CPU (threads: {torch.get_num_threads()})"
        return cls(
            metrics=loop.task.metrics(out, orderings),
            best_epoch=loop.best_epoch,
            epochs=len(loop.epochs),
            stopped=loop.stopped,
            seconds=sum(seconds),
            seconds_per_epoch=median(seconds),
            peak_memory_bytes=peak_memory_bytes,
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else cpu,
            versions={
                "python": platform.python_version(),
                "torch": str(torch.__version__),
                "torch_geometric": torch_geometric.__version__,
                "lightning_fabric": fabric_version(),
                "torch_goat": torch_goat.__version__,
            },
            commit=_commit(),
            temperature=made and made.decision.temperature,
            threshold=made and made.decision.threshold,
            calibration=made and made.calibration,
            at_threshold=made and made.at_threshold,
            nodes=loop.task.sizes,
        )

    def to_json(self) -> str:
        """The text of ``result.json``; a number of a split that is not finite is ``null``."""
        table = settings.to_table(self)
        for key in _BY_SPLIT & table.keys():
            table[key] = {
                split: {name: value if math.isfinite(value) else None for name, value in values.items()}
                for split, values in table[key].items()
            }
        return json.dumps(table, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Result":
        """Reads what :meth:`to_json` wrote."""
        table: dict[str, Any] = json.loads(text)
        for key in _BY_SPLIT & table.keys():
            for values in table[key].values():
                values.update({name: math.nan for name, value in values.items() if value is None})
        if not table["metrics"].get("val"):
            raise ValueError("it has no metrics of the validation nodes")
        return settings.parse(cls, table, "the result")


class PeakMemory:
    """The peak memory use of a device since this object was created."""

    def __init__(self, device: "torch.device") -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.init()  # without it there are no statistics
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # resets the peak of the process on Linux

    def read(self) -> int:
        """In bytes; 0 if unknown."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return bytes_in("/proc/self/status", "VmHWM") or 0


def bytes_in(path: str, key: str) -> int | None:
    """A value of a file of Linux such as ``/proc/meminfo``, converted from KiB; ``None`` if there is none."""
    with suppress(OSError):
        found = (line.split() for line in Path(path).read_text().splitlines() if line.startswith(key))
        return next((1024 * int(words[1]) for words in found), None)
    return None


@lru_cache
def _commit() -> str:
    root = Path(torch_goat.__file__).parents[1]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
