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

SPLITS: Final = ("train", "val", "test")
_FEW_CLASSES: Final = 1000  # that a graph of fewer nodes may have too, if it is a part of another


class Task:
    """A graph with what is to be learned on it; features and edges go to the device when they are asked for.

    Targets of a whole number type are classes, learned by cross entropy and judged by their accuracy; real numbers are
    learned and judged by the mean squared error.

    Args:
        data: A graph with ``x``, edges, ``y``, ``train_mask``, ``val_mask`` and ``test_mask``; the last may
            be empty. A ``target_scale`` says what standardised real targets were divided by: the mean squared error is
            then that of the targets as they were, and the loss that of the standardised ones.
        device: Where to train.
        class_weights: Whether the classes weigh the same in the loss, however many training nodes each has.
    """

    def __init__(self, data: Data, device: torch.device, *, class_weights: bool = False) -> None:
        _check(data)
        self.data, self._device = data, device
        self.classification: Final = not data.y.is_floating_point()
        self.metric: Final = "accuracy" if self.classification else "mse"
        nodes = [getattr(data, f"{split}_mask").nonzero().view(-1) for split in SPLITS]
        self._sizes = [part.numel() for part in nodes]
        self.nodes: Final = torch.cat(nodes).cpu()  # [n], those to train on, to validate, to test
        self.train_nodes: Final = self.nodes[: self._sizes[0]]
        self._nodes = self.nodes.to(device)
        self._train = self._nodes[: self._sizes[0]]
        y = data.y[self.nodes.to(data.y.device)].to(device)
        # [n], or [n, T] in the type that Fabric's models give
        y = y.view(-1).long() if self.classification else y.view(y.size(0), -1).to(torch.get_default_dtype())
        self._y = y.split(self._sizes)
        self._all_y = y
        if self.classification:
            _check_classes(y, max(_FEW_CLASSES, data.num_nodes, int(data.get("num_classes") or 0)))
        elif not (fine := y.isfinite().all(dim=1)).all():
            node = int(self.nodes[int((~fine).nonzero()[0])])
            raise ValueError(
                f"y is no finite number at node {node}, which is in a split; take nodes without a target out of the "
                "masks."
            )
        self.channels: Final = int(y.max()) + 1 if self.classification else y.size(1)  # what a model must give
        self._scale = float(data.get("target_scale") or 1.0)
        if class_weights and not self.classification:
            raise ValueError("class_weights needs classes, but the targets are real numbers; leave it out.")
        self._weight = _class_weights(self._y[0], self.channels) if class_weights else None
        if self._weight is not None and not self._weight[self._y[1]].any():
            raise ValueError(
                "class_weights weighs classes by their training nodes, but no validation node is of a class that has "
                "any; leave it out or split the nodes in another way."
            )

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

    def loss(self, out: Tensor) -> Tensor:
        """The loss of the training nodes, for :meth:`Tensor.backward`.

        Args:
            out: The model's output ``[N, C]``.
        """
        self._check_shape(out, self.data.num_nodes)
        return self._loss(out[self._train], self._y[0])

    def loss_of(self, out: Tensor, index: Tensor, whole: Tensor) -> Tensor:
        """What some training nodes add to the loss of more of them, for :meth:`Tensor.backward`.

        Args:
            out: The model's output for these nodes ``[b, C]``.
            index: Their places among the training nodes ``[b]``.
            whole: The places of all nodes that the loss is the mean over ``[B]``.
        """
        self._check_shape(out, index.numel())
        index, whole = index.to(self._device), whole.to(self._device)
        share: float | Tensor = index.numel() / whole.numel()
        if self._weight is not None:
            share = self._weight[self._y[0][index]].sum() / self._weight[self._y[0][whole]].sum()
        return self._loss(out, self._y[0][index]) * share

    def _check_shape(self, out: Tensor, nodes: int) -> None:
        fits = out.dim() == 2 and out.size(0) == nodes
        # A model may know classes that no node here has.
        if not fits or out.size(1) < self.channels or (out.size(1) > self.channels and not self.classification):
            kind = "classes" if self.classification else "targets"
            raise ValueError(
                f"the model gives a result of shape {list(out.shape)}, but there are {nodes} nodes and "
                f"{self.channels} {kind}; build it with out_channels={self.channels}."
            )

    def measure(self, out: Tensor) -> Tensor:
        """The validation loss, and the metric of every split, without waiting for the device ``[4]``.

        Args:
            out: The model's output in evaluation ``[N, C]``.
        """
        out = self._of_splits(out)
        loss = self._loss(out[self._sizes[0] : sum(self._sizes[:2])], self._y[1])
        good = (
            out.argmax(dim=-1) == self._all_y if self.classification else ((out - self._all_y) * self._scale).square()
        )
        return torch.stack([loss.double(), *(part.mean(dtype=torch.double) for part in good.split(self._sizes))])

    def is_finite(self, out: Tensor) -> bool:
        """Whether the output of all nodes of the splits is made of finite numbers.

        Args:
            out: The model's output in evaluation ``[N, C]``.
        """
        return bool(self._of_splits(out).isfinite().all())

    def metrics(self, out: Tensor) -> dict[str, dict[str, float]]:
        """Every metric of every split that has nodes, from one forward pass.

        Args:
            out: The model's output in evaluation ``[N, C]``.
        """
        classes, numbers = [metrics.accuracy, metrics.macro_f1, metrics.roc_auc], [metrics.mse, metrics.r2]
        wanted = classes if self.classification else numbers
        out, target = self._of_splits(out.detach()), self._all_y
        if not self.classification:
            out, target = out * self._scale, target * self._scale
        parts = zip(SPLITS, out.split(self._sizes), target.split(self._sizes), strict=True)
        return {
            split: {metric.__name__: metric(part, y) for metric in wanted} for split, part, y in parts if y.size(0) > 0
        }

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
    """What the targets of a graph ask for."""
    return "regression" if data.y.is_floating_point() else "classification"


def _class_weights(y: Tensor, classes: int) -> Tensor:
    """The inverse of each class's share among the training nodes, over their number; 0 for a class without any."""
    count = torch.bincount(y, minlength=classes)
    weight = y.numel() / (count.count_nonzero() * count.clamp(min=1))
    return weight * (count > 0)


def _check_classes(y: Tensor, most: int) -> None:
    """Refuses numbers that cannot be classes: a network has an output for each up to the largest."""
    low, high = torch.stack(torch.aminmax(y)).tolist()
    if low < 0:
        raise ValueError(f"y has class {low} at a node of a split; classes are counted from 0.")
    if high >= most:
        raise ValueError(
            f"y has class {high} at a node of a split, where there can be {most} classes at most; number them from 0 "
            "without gaps."
        )


def _check(data: Data) -> None:
    """Refuses a graph that lacks what training reads."""
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
            raise ValueError(f"data.{split}_mask has no node; training needs some to train on and some to validate.")
    if data.y.dim() == 0 or data.y.size(0) != data.num_nodes:
        rows = data.y.size(0) if data.y.dim() else "no"
        raise ValueError(f"data.y has {rows} rows, but there are {data.num_nodes} nodes.")
    if not data.y.is_floating_point() and data.y.numel() != data.num_nodes:
        raise ValueError(f"data.y must have one class per node, got shape {list(data.y.shape)}.")
    check_edges(data)
