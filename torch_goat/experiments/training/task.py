from collections.abc import Sequence
from functools import cached_property
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.data.loader.csc import check_edges, edges_of
from torch_goat.data.loader.folder import GroupedData
from torch_goat.data.tables.options import Task as TaskName
from torch_goat.experiments.training import metrics
from torch_goat.nn.ordering import Ordering

SPLITS: Final = ("train", "val", "test")
_FEW_CLASSES: Final = 1000  # allowed in any graph: one with fewer nodes may be a part of another


class Task:
    """A graph with its targets; features and edges are moved to the device on first access.

    Integer targets are classes, trained with cross-entropy and measured by accuracy; floating-point targets are trained
    and measured with the mean squared error.

    Args:
        data: A graph with ``x``, edges, ``y``, ``train_mask``, ``val_mask`` and ``test_mask``; the last may be empty.
            With a ``target_scale``, by which real targets were divided, metrics are in the original unit.
        device: Where to train.
        class_weights: Whether all classes have the same weight in the loss, however many training nodes each has.
        metric: What is measured after each epoch, ``"accuracy"``, ``"macro_f1"`` or ``"roc_auc"``; by default accuracy
            or MSE.
    """

    def __init__(self, data: Data, device: torch.device, *, class_weights: bool = False, metric: str = "") -> None:
        _check(data)
        self.data, self._device = data, device
        self.classification: Final = not data.y.is_floating_point()
        if metric and not self.classification:
            raise ValueError(f"metric = {metric!r} needs classes, but the targets are real numbers; leave it out.")
        self.metric: Final = metric or metrics.OF_TASK[task_of(data)][0]
        nodes = [getattr(data, f"{split}_mask").nonzero().view(-1) for split in SPLITS]
        self._sizes = [part.numel() for part in nodes]
        self.nodes: Final = torch.cat(nodes).cpu()  # [n], those of training, validation and test
        self.train_nodes: Final = self.nodes[: self._sizes[0]]
        self._nodes = self.nodes.to(device)
        y = data.y[self.nodes.to(data.y.device)].to(device)
        # [n], or [n, T] in the dtype of the model's output
        self._y = y.view(-1).long() if self.classification else y.view(y.size(0), -1).to(torch.get_default_dtype())
        self.train_targets, self._val_y, _ = self._y.split(self._sizes)
        if self.classification:
            _check_classes(self._y, max(_FEW_CLASSES, data.num_nodes, int(data.get("num_classes") or 0)))
        elif not (fine := self._y.isfinite().all(dim=1)).all():
            node = int(self.nodes[int((~fine).nonzero()[0])])
            raise ValueError(
                f"y is not finite at node {node}, which is in a split; remove nodes without a target from the masks."
            )
        # The number of outputs that a model must have.
        self.channels: Final = int(self._y.max()) + 1 if self.classification else self._y.size(1)
        # The number of outputs of a new model: also for classes that no node of a split has.
        self.outputs: Final = int((self.classification and data.get("num_classes")) or self.channels)
        self._scale = float(data.get("target_scale") or 1.0)
        if class_weights and not self.classification:
            raise ValueError("class_weights needs classes, but the targets are real numbers; leave it out.")
        self._weight: Tensor | None = None
        if class_weights:  # inversely proportional to the number of training nodes; 0 for a class without any
            count = torch.bincount(self.train_targets, minlength=self.channels)
            self._weight = self.train_targets.numel() / (count.count_nonzero() * count.clamp(min=1)) * (count > 0)
            if not self._weight[self._val_y].any():
                raise ValueError(
                    "class_weights weighs classes by their training nodes, but no validation node has a class with "
                    "training nodes; leave it out or split the nodes differently."
                )

    @property
    def sizes(self) -> dict[str, int]:
        """The number of nodes of each split."""
        return dict(zip(SPLITS, self._sizes, strict=True))

    @cached_property
    def x(self) -> Tensor:
        """The features ``[N, F]``."""
        return self.data.x.to(self._device)

    @cached_property
    def edge_index(self) -> Tensor:
        """The edges ``[2, E]``."""
        return edges_of(self.data).to(self._device)

    @cached_property
    def edge_attr(self) -> Tensor | None:
        """The features of the edges ``[E, D]``, if there are any."""
        return None if self.data.edge_attr is None else self.data.edge_attr.to(self._device)

    @cached_property
    def order_by(self) -> Tensor:
        """The ranks of the edges' keys ``[E]``, on the CPU: whole numbers, which no precision of training rounds."""
        key, count = self.data.get("edge_key"), edges_of(self.data).size(1)
        if key is None or key.shape != (count,):
            found = None if key is None else list(key.shape)
            raise ValueError(
                f"given_order needs data.edge_key with one number for each of the {count} edges, got shape {found}."
            )
        if bool((unknown := key.isnan()).any()):
            raise ValueError(f"data.edge_key is NaN at edge {int(unknown.nonzero()[0])}; give every edge a number.")
        return key.unique(return_inverse=True)[1].cpu()

    def loss(self, out: Tensor) -> Tensor:
        """The loss of the training nodes, from the model's output ``[N, C]``."""
        self._check_shape(out, self.data.num_nodes)
        return self._loss(out[self._nodes[: self._sizes[0]]], self.train_targets)

    def loss_of(self, out: Tensor, index: Tensor, whole: Tensor) -> Tensor:
        """The contribution of some training nodes to the mean loss of a larger set of them.

        Args:
            out: The model's output for these nodes ``[b, C]``.
            index: Their positions among the training nodes ``[b]``.
            whole: The positions of the larger set ``[B]``.
        """
        self._check_shape(out, index.numel())
        index, whole = index.to(self._device), whole.to(self._device)
        share: float | Tensor = index.numel() / whole.numel()
        if self._weight is not None:
            share = self._weight[self.train_targets[index]].sum() / self._weight[self.train_targets[whole]].sum()
        return self._loss(out, self.train_targets[index]) * share

    def _check_shape(self, out: Tensor, nodes: int) -> None:
        fits = out.dim() == 2 and out.size(0) == nodes
        # A model may have outputs for classes that no node here has.
        if not fits or out.size(1) < self.channels or (out.size(1) > self.channels and not self.classification):
            kind = "classes" if self.classification else "targets"
            raise ValueError(
                f"the model's output has shape {list(out.shape)}, but there are {nodes} nodes and {self.channels} "
                f"{kind}; build it with out_channels={self.channels}."
            )

    def measure(self, out: Tensor) -> Tensor:
        """The validation loss and the metric of every split ``[4]``, without waiting for the device."""
        out = self._of_splits(out)
        loss = self._loss(out[self._sizes[0] : sum(self._sizes[:2])], self._val_y)
        if self.metric not in ("accuracy", "mse"):
            parts = zip(out.split(self._sizes), self._y.split(self._sizes), strict=True)
            return torch.stack([loss.double(), *(getattr(metrics, self.metric)(part, y) for part, y in parts)])
        good = out.argmax(dim=-1) == self._y if self.classification else ((out - self._y) * self._scale).square()
        return torch.stack([loss.double(), *(part.mean(dtype=torch.double) for part in good.split(self._sizes))])

    def is_finite(self, out: Tensor) -> bool:
        """Whether the output is finite at all nodes of the splits."""
        return bool(self._of_splits(out).isfinite().all())

    def metrics(self, out: Tensor, orderings: Sequence[Ordering] = ()) -> dict[str, dict[str, float]]:
        """All metrics of every split that has nodes, from the model's output in evaluation mode ``[N, C]`` and the
        orderings of its GOAT layers, which are compared with ``data.key``."""
        nodes = dict(zip(SPLITS, self._nodes.split(self._sizes), strict=True))
        found, names = {}, metrics.OF_TASK[task_of(self.data)]
        for split, (part, y) in self.parts(out).items():
            found[split] = {name: float(getattr(metrics, name)(part, y)) for name in names}
            found[split] |= {"tau": metrics.tau(orderings, self.data.key, nodes[split])} if orderings else {}
        return found

    def parts(self, out: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """The outputs ``[n, C]`` and the targets of every split that has nodes; numbers are in the original unit."""
        out, target = self._of_splits(out.detach()), self._y
        if not self.classification:
            out, target = out * self._scale, target * self._scale
        parts = zip(SPLITS, out.split(self._sizes), target.split(self._sizes), strict=True)
        return {split: (part, y) for split, part, y in parts if y.size(0) > 0}

    def _of_splits(self, out: Tensor) -> Tensor:
        """The rows of the nodes of all splits, on the device ``[n, C]``."""
        return out[self._nodes.to(out.device)].to(self._device)

    def _loss(self, out: Tensor, y: Tensor) -> Tensor:
        if not self.classification:
            return F.mse_loss(out, y)
        if self._weight is None:
            return F.cross_entropy(out, y)
        weight = F.pad(self._weight, (0, out.size(1) - self._weight.numel()))  # of classes that no node has
        return F.cross_entropy(out, y, weight.to(out.dtype))


def task_of(data: Data) -> TaskName:
    """The task that the type of the targets implies."""
    return "regression" if data.y.is_floating_point() else "classification"


def _check_classes(y: Tensor, most: int) -> None:
    """Raises an error for numbers that cannot be classes: a network has an output for each up to the largest."""
    low, high = torch.stack(torch.aminmax(y)).tolist()
    if low < 0:
        raise ValueError(f"y has class {low} at a node of a split; classes are counted from 0.")
    if high >= most:
        raise ValueError(
            f"y has class {high} at a node of a split, but there can be at most {most} classes; number them from 0 "
            "without gaps."
        )


def _check(data: Data) -> None:
    """Raises an error if a graph lacks anything that training needs."""
    edges = () if isinstance(data, GroupedData) else ("edge_index",)
    for key in ("x", *edges, "y", *(f"{split}_mask" for split in SPLITS)):
        if not isinstance(data.get(key), Tensor):
            raise ValueError(f"data.{key} must be a tensor to train on, got {data.get(key)!r}.")
    for split in SPLITS:
        mask = data[f"{split}_mask"]
        if mask.dtype != torch.bool or mask.shape != (data.num_nodes,):
            raise ValueError(
                f"data.{split}_mask must have one boolean for each of the {data.num_nodes} nodes, "
                f"got {mask.dtype} of shape {list(mask.shape)}."
            )
        if split != "test" and not mask.any():
            raise ValueError(f"data.{split}_mask selects no node; training needs training and validation nodes.")
    if data.y.dim() == 0 or data.y.size(0) != data.num_nodes:
        rows = data.y.size(0) if data.y.dim() else "no"
        raise ValueError(f"data.y has {rows} rows, but there are {data.num_nodes} nodes.")
    if not data.y.is_floating_point() and data.y.numel() != data.num_nodes:
        raise ValueError(f"data.y must have one class per node, got shape {list(data.y.shape)}.")
    check_edges(data)
