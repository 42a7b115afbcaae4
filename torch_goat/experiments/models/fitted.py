"""Layers of models that are not trained by gradients but fitted to the features of the nodes.

They ignore the edges. Their weights are those of the fitted model, so that a run folder holds arrays only and a network
of them predicts like any other; see :mod:`torch_goat.experiments.training.features`.
"""

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Module, Parameter

_CHUNK: Final = 1 << 22  # nodes times trees that are evaluated at a time


class Constant(Module):
    """The same output for every node."""

    def __init__(self, out_channels: int) -> None:
        super().__init__()
        self.value = Parameter(torch.zeros(out_channels))

    def reset_parameters(self) -> None:
        torch.nn.init.zeros_(self.value)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.value.repeat(x.size(0), 1)


class Trees(Module):
    """A sum of decision trees for each output.

    Row t of the arrays is a tree: ``feature``, ``threshold``, ``left`` and ``right`` of its inner nodes, of which the
    first is the root, and the ``value`` of its leaves, which are their own children ``[T, M]``. It belongs to the
    output ``output[t]`` ``[T]``. ``baseline`` is added ``[C]``. Their sizes are those of the loaded weights.
    """

    threshold: Tensor
    value: Tensor
    feature: Tensor
    left: Tensor
    right: Tensor
    output: Tensor
    baseline: Tensor

    def __init__(self, out_channels: int) -> None:
        super().__init__()
        for name in ("threshold", "value"):
            self.register_buffer(name, torch.empty(0, 1).double())
        for name in ("feature", "left", "right"):
            self.register_buffer(name, torch.empty(0, 1).long())
        self.register_buffer("output", torch.empty(0).long())
        self.register_buffer("baseline", torch.zeros(out_channels).double())

    def reset_parameters(self) -> None:
        """Nothing is initialised: trees are grown."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        rows = max(1, _CHUNK // max(1, self.output.numel()))
        return torch.cat([self._predict(part) for part in x.split(rows)]).to(x.dtype)

    def _predict(self, x: Tensor) -> Tensor:
        tree = torch.arange(self.output.numel(), device=x.device)  # [T]
        node = tree.new_zeros(x.size(0), tree.numel())  # [n, T]
        while True:
            below = x.gather(1, self.feature[tree, node]).double() <= self.threshold[tree, node]
            after = torch.where(below, self.left[tree, node], self.right[tree, node])
            if torch.equal(after, node):
                break
            node = after
        out = self.baseline.expand(x.size(0), -1).clone()
        return out.index_add_(1, self.output, self.value[tree, node])

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        for name, buffer in self.named_buffers():
            given = state_dict.get(prefix + name)
            if given is not None and name != "baseline" and given.dtype == buffer.dtype and given.dim() == buffer.dim():
                setattr(self, name, buffer.new_empty(given.shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        check_trees(self)


def check_trees(trees: Trees) -> None:
    """Raises an error for arrays that are not trees, in which a prediction would never end or read elsewhere."""
    shape = trees.value.shape
    arrays = trees.threshold, trees.feature, trees.left, trees.right
    place = torch.arange(shape[-1])
    leaf = (trees.left == place) & (trees.right == place)
    good = all(one.shape == shape for one in arrays) and trees.output.shape == shape[:1]
    good = good and bool((leaf | ((trees.left > place) & (trees.right > place))).all())  # children come later
    good = good and bool((torch.maximum(trees.left, trees.right) < max(1, shape[-1])).all())
    good = good and bool(((trees.output >= 0) & (trees.output < trees.baseline.numel())).all())
    if not good or bool((trees.feature < 0).any()):
        raise ValueError("the arrays of the boosted trees do not describe trees")
