"""Tasks whose label is a known function of a few marked neighbours, so that their information is known in bits."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from torch_goat.data.datasets.disease_sim import random_tree
from torch_goat.data.datasets.erdos_renyi import erdos_renyi
from torch_goat.data.datasets.splits import generated_parts, masks

DISTRACTORS = 3.0  # of a centre in a random graph, on average
RULES = ("xor", "copy", "unique")  # what the informative neighbours say, as their features mark it


class Outcome(NamedTuple):
    """What the informative neighbours of a centre may show."""

    values: tuple[int, ...]  # one for each of them
    rule: int  # the place in RULES of the rule that they are marked with; -1: no mark
    label: int
    probability: float


@dataclass(frozen=True, kw_only=True)
class NeighborhoodTask(ABC):
    """A graph whose labelled nodes, the centres, read their label off their informative neighbours.

    Every centre has ``informative`` neighbours that are informative, and belong to it alone; what they show is drawn
    from :meth:`outcomes`, and the centre's label follows from it. Its other neighbours are centres too: they distract,
    with values of their own that mean nothing to it. In a random graph the centres have 3 such neighbours on average
    and the informative nodes are linked at random among themselves; in a tree the centres form a tree in which each
    has 2 to 6 children, and the informative nodes are leaves.

    The features tell what a node is: a one-hot vector of its role (distractor, first informative neighbour, another
    informative neighbour) together with its value, then, where a task has rules, a one-hot vector of the rule that
    informative nodes are marked with. ``role`` has the role as a number: 0 for centres, 1 for the first informative
    neighbour, 2 for the second, and so on. Informative nodes have no label: their ``y`` is -1 and no split has them.

    Args:
        informative: How many neighbours of a centre are informative.
        centers: The number of centres; 60/20/20 percent are for training, validation and testing.
        graph: ``"random"`` or ``"tree"``.
    """

    informative: int = 2
    centers: int = 300
    graph: Literal["random", "tree"] = "random"

    def __post_init__(self) -> None:
        if self.informative < 2:
            raise ValueError(f"informative={self.informative} is impossible; two sources need 2 neighbours or more.")
        if self.centers < 10:
            raise ValueError(f"centers={self.centers} is too few for three splits; choose 10 or more.")
        if self.graph not in ("random", "tree"):
            raise ValueError(f"graph={self.graph!r} is unknown; it must be 'random' or 'tree'.")

    @property
    def num_values(self) -> int:
        """How many values a node may have."""
        return 2

    @property
    def num_rules(self) -> int:
        """How many rules the features mark."""
        return len(RULES)

    @property
    def num_features(self) -> int:
        """The number of features of a node."""
        return 3 * self.num_values + self.num_rules

    @property
    def num_nodes(self) -> int:
        """The number of nodes, with the informative ones."""
        return self.centers * (1 + self.informative)

    @property
    def num_edges(self) -> float:
        """The expected number of undirected edges."""
        own = self.centers * self.informative
        if self.graph == "tree":
            return own + self.centers - 1
        return own + DISTRACTORS * (self.centers + own) / 2

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return 1 + max(outcome.label for outcome in self.outcomes())

    @abstractmethod
    def outcomes(self) -> Iterator[Outcome]:
        """All that the informative neighbours may show, with their label; the probabilities sum to one."""

    def distribution(self, sources: int = 2) -> dict[tuple[int, ...], float]:
        """The exact joint distribution of sources and label, for :func:`torch_goat.experiments.information.decompose`.

        Args:
            sources: 2 sets the first informative neighbour against the others; 3 sets the first and the second
                against the others. A source is what these neighbours show: their values and their mark.

        Returns:
            The probability of each outcome ``(source, ..., source, label)``, its symbols numbered.
        """
        if not 2 <= sources <= min(3, self.informative):
            raise ValueError(
                f"sources={sources} is impossible; it must be 2 or 3 and at most informative={self.informative}."
            )
        joint: dict[tuple[int, ...], float] = {}
        for outcome in self.outcomes():
            values, last = outcome.values, sources - 1
            groups = [*((value,) for value in values[:last]), values[last:]]
            key = (*(self._symbol(group, outcome.rule) for group in groups), outcome.label)
            joint[key] = joint.get(key, 0.0) + outcome.probability
        return joint

    @staticmethod
    def groups(data: Data) -> Tensor:
        """The group of each edge ``[E]`` for :func:`torch_goat.experiments.information.estimate`.

        0 where the first informative neighbour speaks to its centre, 1 where another one does, else -1.

        Args:
            data: A graph that :meth:`make` made.
        """
        source, target = data.role[data.edge_index]
        return torch.where((target == 0) & (source > 0), (source > 1).long(), -1)

    def _symbol(self, group: tuple[int, ...], rule: int) -> int:
        number = rule + 1
        for value in group:
            number = number * self.num_values + value
        return number

    def make(self, seed: int = 0) -> Data:
        """The graph of a seed, with features, labels, roles and masks."""
        generator = torch.Generator().manual_seed(seed)
        outcomes = list(self.outcomes())
        chance = torch.tensor([outcome.probability for outcome in outcomes], dtype=torch.double)
        drawn = torch.multinomial(chance, self.centers, replacement=True, generator=generator)  # [C]
        values = torch.tensor([outcome.values for outcome in outcomes])[drawn]  # [C, k]
        rule = torch.tensor([outcome.rule for outcome in outcomes])[drawn]
        label = torch.tensor([outcome.label for outcome in outcomes])[drawn]
        noise = torch.randint(self.num_values, (self.centers,), generator=generator)

        slots = torch.arange(1, self.informative + 1).repeat(self.centers)  # informative nodes, centre by centre
        role = torch.cat([torch.zeros(self.centers, dtype=torch.long), slots])  # [N]
        value = torch.cat([noise, values.flatten()])
        x = torch.zeros(self.num_nodes, self.num_features)
        x[torch.arange(self.num_nodes), role.clamp(max=2) * self.num_values + value] = 1
        if self.num_rules:
            marked = torch.arange(self.centers, self.num_nodes)
            x[marked, 3 * self.num_values + rule.repeat_interleave(self.informative)] = 1
        return Data(
            x=x,
            edge_index=self._edges(generator),
            y=torch.cat([label, torch.full((slots.numel(),), -1)]),
            role=role,
            **masks(generated_parts(self.centers, generator), self.num_nodes),
        )

    def _edges(self, generator: torch.Generator) -> Tensor:
        own = torch.arange(self.centers).repeat_interleave(self.informative)
        edges = [torch.stack([own, torch.arange(self.centers, self.num_nodes)])]
        if self.graph == "tree":
            edges.append(random_tree(self.centers, generator))
        else:
            for first, count in ((0, self.centers), (self.centers, own.numel())):
                adjacent = erdos_renyi(count, DISTRACTORS / (count - 1), generator)
                edges.append(first + adjacent.nonzero().t())
        return to_undirected(torch.cat(edges, dim=1), num_nodes=self.num_nodes)


@dataclass(frozen=True, kw_only=True)
class NeighborhoodDial(NeighborhoodTask):
    """A mixture of three rules, each in a share of the neighbourhoods and marked at their informative nodes.

    By the rule ``xor`` their bits are independent and the label is whether the number of ones is odd: 1 bit of
    synergy. By ``copy`` all bits are the label: 1 bit of redundancy. By ``unique`` the bits are independent and the
    label is the first one: 1 bit of unique information. Since every informative neighbour shows the rule, the shares
    are the parts of the decomposition, in bits, whatever the mixture and under both measures; the label is always 1 bit
    in all.

    Args:
        synergy: The share of ``xor``.
        unique: The share of ``unique``; what is left is that of ``copy``.
    """

    synergy: float = 0.5
    unique: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.synergy < 0 or self.unique < 0 or self.synergy + self.unique > 1:
            raise ValueError(f"synergy={self.synergy} and unique={self.unique} must be shares that sum to 1 at most.")

    def outcomes(self) -> Iterator[Outcome]:
        shares = (self.synergy, 1 - self.synergy - self.unique, self.unique)
        each = 0.5**self.informative
        for bits in product((0, 1), repeat=self.informative):
            alike = 0.5 * (len(set(bits)) == 1)
            odd = sum(bits) % 2
            for rule, (label, chance) in enumerate(((odd, each), (bits[0], alike), (bits[0], each))):
                if shares[rule] * chance > 0:
                    yield Outcome(bits, rule, label, shares[rule] * chance)


@dataclass(frozen=True, kw_only=True)
class NeighborhoodXOR(NeighborhoodDial):
    """The label is whether an odd number of the informative neighbours has a one: synergy alone, 1 bit."""

    synergy: float = 1.0


@dataclass(frozen=True, kw_only=True)
class NeighborhoodCopy(NeighborhoodDial):
    """All informative neighbours show the label: redundancy alone, 1 bit."""

    synergy: float = 0.0


@dataclass(frozen=True, kw_only=True)
class NeighborhoodUnique(NeighborhoodDial):
    """The first informative neighbour shows the label, the others nothing: unique information alone, 1 bit."""

    synergy: float = 0.0
    unique: float = 1.0


@dataclass(frozen=True, kw_only=True)
class CountDistinct(NeighborhoodTask):
    """The label is how many different values the informative neighbours have, less one.

    With two informative neighbours all of the information is synergy. With more, the values of the others alone say
    something too: :meth:`distribution` has what the exact parts follow from.

    Args:
        values: How many values there are.
    """

    informative: int = 3
    values: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values < 2:
            raise ValueError(f"values={self.values} is impossible; there is nothing to count below 2.")

    @property
    def num_values(self) -> int:
        return self.values

    @property
    def num_rules(self) -> int:
        return 0

    def outcomes(self) -> Iterator[Outcome]:
        for drawn in product(range(self.values), repeat=self.informative):
            yield Outcome(drawn, -1, len(set(drawn)) - 1, self.values**-self.informative)


SYNERGY_PERCENT = (0, 25, 50, 75, 100)
"""The marks of the dial that are datasets by name."""


def _tasks(graph: Literal["random", "tree"], suffix: str) -> dict[str, NeighborhoodTask]:
    tasks: dict[str, NeighborhoodTask] = {
        f"xor{suffix}": NeighborhoodXOR(graph=graph),
        f"xor-3{suffix}": NeighborhoodXOR(graph=graph, informative=3),
        f"copy{suffix}": NeighborhoodCopy(graph=graph),
        f"unique{suffix}": NeighborhoodUnique(graph=graph),
        f"count-distinct{suffix}": CountDistinct(graph=graph),
    }
    for percent in SYNERGY_PERCENT:
        tasks[f"synergy-{percent}{suffix}"] = NeighborhoodDial(graph=graph, informative=4, synergy=percent / 100)
    return tasks


NEIGHBORHOOD_TASKS: dict[str, NeighborhoodTask] = _tasks("random", "") | _tasks("tree", "-tree")
"""The tasks that are datasets, by name."""
