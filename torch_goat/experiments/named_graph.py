from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch_goat.experiments.training.decisions import Decision
from torch_goat.experiments.training.metrics import digits
from torch_goat.settings import SettingsError, nearest

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data


class NamedGraph(NamedTuple):
    """A graph with the names of its nodes and classes."""

    data: Data
    ids: tuple[str, ...]  # of the nodes, in the order of data.x
    classes: tuple[str, ...]  # in the order of the network's output; empty for regression
    target: str = ""  # the name of the predicted column, if any
    target_mean: float = 0.0  # a predicted number is the network's output * target_scale + target_mean
    target_scale: float = 1.0
    decision: Decision = Decision()  # how the network's output becomes probabilities and a class

    @property
    def truth(self) -> Tensor:
        """The class or the target of every node, in the units of the target ``[N]``."""
        return self.in_units(self.data.y.view(self.data.num_nodes, -1)[:, 0])

    def in_units(self, values: Tensor) -> Tensor:
        """Converts standardised targets or outputs of the network to the units of the target; classes stay as is.

        In 64 bits, as the mean can be large next to the standard deviation.
        """
        return values if self.classes else values.double() * self.target_scale + self.target_mean

    @property
    def digits(self) -> int:
        """The significant digits of predicted numbers and targets to show."""
        return digits(self.target_mean, self.target_scale)

    def node(self, name: str) -> int:
        """Returns the index of a node."""
        name = str(name)
        try:
            return self.ids.index(name)
        except ValueError:
            close = nearest(name, self.ids) if len(self.ids) <= 100_000 else "."
            if "did you mean" not in close:  # the list of all nodes helps nobody
                close = f", whose nodes are {', '.join(self.ids[:3])}{', ...' if len(self.ids) > 3 else ''}; name one."
            raise SettingsError(f"there is no node {name!r} in the graph{close}") from None
