"""Tasks whose labels are known functions of a few marked neighbours, with a known information decomposition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from torch_goat.data.datasets.splits import generated_parts, masks
from torch_goat.data.datasets.synthetic import erdos_renyi, random_tree
from torch_goat.lazy import lazy_module

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch_geometric.data import Data
else:
    torch = lazy_module("torch")
pyg_data = lazy_module("torch_geometric.data")
pyg_utils = lazy_module("torch_geometric.utils")

DISTRACTORS = 3.0  # the mean number of distractors of a centre in a random graph
RULES = ("xor", "copy", "unique")  # how informative neighbours determine the label; features mark the rule


class Outcome(NamedTuple):
    """A possible observation of the informative neighbours of a centre."""

    values: tuple[int, ...]  # one per informative neighbour
    rule: int  # the index of the rule in RULES; -1 if unmarked
    label: int
    probability: float


@dataclass(frozen=True, kw_only=True)
class NeighborhoodTask(ABC):
    """A graph whose labelled nodes, the centres, have labels determined by their informative neighbours.

    Every centre has ``informative`` informative neighbours, which belong to it alone. Their values are drawn from
    :meth:`outcomes` and determine the label. The other neighbours of a centre are distractors: centres with values
    that are irrelevant to it. In a random graph, centres have 3 distractors on average and informative nodes are
    randomly linked among themselves; in a tree, the centres form a tree in which each has 2 to 6 children, and
    informative nodes are leaves.

    The features of a node are a one-hot vector of its role (distractor, first informative neighbour, another
    informative neighbour) combined with its value and, in tasks with rules, a one-hot vector of the rule of informative
    nodes. ``role`` is 0 for centres, 1 for the first informative neighbour, 2 for the second, and so on. Informative
    nodes are unlabelled: their ``y`` is -1 and they are in no split.
    """

    informative: int = 2  #: The number of informative neighbours per centre.
    centers: int = 300  #: The number of centres; 60/20/20 percent are for training, validation and testing.
    graph: Literal["random", "tree"] = "random"
    num_values: ClassVar[int] = 2
    num_rules: ClassVar[int] = len(RULES)

    def __post_init__(self) -> None:
        if self.informative < 2:
            raise ValueError(f"informative must be at least 2, got {self.informative}.")
        if self.centers < 10:
            raise ValueError(f"centers must be at least 10, got {self.centers}.")
        if self.graph not in ("random", "tree"):
            raise ValueError(f"graph must be 'random' or 'tree', got {self.graph!r}.")

    @property
    def num_features(self) -> int:
        return 3 * self.num_values + self.num_rules

    @property
    def num_nodes(self) -> int:
        return self.centers * (1 + self.informative)

    @property
    def num_edges(self) -> float:
        """The expected number of undirected edges."""
        others = self.centers - 1 if self.graph == "tree" else DISTRACTORS * self.num_nodes / 2
        return self.centers * self.informative + others

    @property
    def num_classes(self) -> int:
        return 1 + max(outcome.label for outcome in self.outcomes())

    @abstractmethod
    def outcomes(self) -> Iterator[Outcome]:
        """All possible observations with their labels; the probabilities sum to one."""

    def distribution(self, sources: int = 2) -> dict[tuple[int, ...], float]:
        """The exact joint distribution of sources and label, for :func:`torch_goat.experiments.information.decompose`:
        the probability of each outcome ``(source, ..., source, label)``.

        Args:
            sources: The number of sources. With 2, these are the first informative neighbour and the others; with 3,
                the first, the second and the others. A source consists of the values and the rule of its neighbours.
        """
        if not 2 <= sources <= min(3, self.informative):
            raise ValueError(f"sources must be 2 or 3 and at most informative={self.informative}, got {sources}.")
        joint: dict[tuple[int, ...], float] = {}
        for outcome in self.outcomes():
            values, last = outcome.values, sources - 1
            groups = [*((value,) for value in values[:last]), values[last:]]
            symbols = [
                reduce(lambda number, value: number * self.num_values + value, group, outcome.rule + 1)
                for group in groups
            ]
            joint[*symbols, outcome.label] = joint.get((*symbols, outcome.label), 0.0) + outcome.probability
        return joint

    @staticmethod
    def groups(data: Data) -> Tensor:
        """The groups of edges ``[E]`` for :func:`torch_goat.experiments.information.estimate`: 0 from the first
        informative neighbour to its centre, 1 from another informative neighbour, otherwise -1."""
        source, target = data.role[data.edge_index]
        return torch.where((target == 0) & (source > 0), (source > 1).long(), -1)

    def make(self, seed: int = 0) -> Data:
        """Generates a graph with features, labels, roles and masks."""
        generator = torch.Generator().manual_seed(seed)
        *columns, probabilities = zip(*self.outcomes(), strict=True)
        chance = torch.tensor(probabilities, dtype=torch.double)
        drawn = torch.multinomial(chance, self.centers, replacement=True, generator=generator)  # [C]
        values, rule, label = (torch.tensor(column)[drawn] for column in columns)  # [C, k], [C] and [C]
        noise = torch.randint(self.num_values, (self.centers,), generator=generator)

        slots = torch.arange(1, self.informative + 1).repeat(self.centers)  # informative nodes, centre by centre
        role = torch.cat([torch.zeros(self.centers, dtype=torch.long), slots])  # [N]
        value = torch.cat([noise, values.flatten()])
        x = torch.zeros(self.num_nodes, self.num_features)
        x[torch.arange(self.num_nodes), role.clamp(max=2) * self.num_values + value] = 1
        if self.num_rules:
            marked = torch.arange(self.centers, self.num_nodes)
            x[marked, 3 * self.num_values + rule.repeat_interleave(self.informative)] = 1
        return pyg_data.Data(
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
        return pyg_utils.to_undirected(torch.cat(edges, dim=1), num_nodes=self.num_nodes)


@dataclass(frozen=True, kw_only=True)
class NeighborhoodDial(NeighborhoodTask):
    """A mixture of three rules, marked at the informative nodes.

    With ``xor``, the bits are independent and the label is their parity: 1 bit of synergy. With ``copy``, all bits
    equal the label: 1 bit of redundancy. With ``unique``, the bits are independent and the label is the first one: 1
    bit of unique information. Since every informative neighbour shows the rule, the shares of the rules equal the terms
    of the decomposition in bits, under both measures.
    """

    synergy: float = 0.5  #: The share of ``xor``.
    unique: float = 0.0  #: The share of ``unique``; the remainder is the share of ``copy``.

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.synergy < 0 or self.unique < 0 or self.synergy + self.unique > 1:
            raise ValueError(
                f"synergy and unique must be non-negative and sum to at most 1, got {self.synergy} and {self.unique}."
            )

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
    """The label is the parity of the informative neighbours: 1 bit of synergy."""

    synergy: float = 1.0


@dataclass(frozen=True, kw_only=True)
class NeighborhoodCopy(NeighborhoodDial):
    """All informative neighbours show the label: 1 bit of redundancy."""

    synergy: float = 0.0


@dataclass(frozen=True, kw_only=True)
class NeighborhoodUnique(NeighborhoodDial):
    """Only the first informative neighbour shows the label: 1 bit of unique information."""

    synergy: float = 0.0
    unique: float = 1.0


@dataclass(frozen=True, kw_only=True)
class CountDistinct(NeighborhoodTask):
    """The label is the number of distinct values of the informative neighbours, minus one.

    With two informative neighbours, all information is synergy. With more, the other neighbours' values are informative
    by themselves; the exact decomposition follows from :meth:`distribution`.
    """

    informative: int = 3
    values: int = 3  #: The number of possible values.
    num_rules: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values < 2:
            raise ValueError(f"values must be at least 2, got {self.values}.")

    @property
    def num_values(self) -> int:  # type: ignore[override]
        return self.values

    def outcomes(self) -> Iterator[Outcome]:
        for drawn in product(range(self.values), repeat=self.informative):
            yield Outcome(drawn, -1, len(set(drawn)) - 1, self.values**-self.informative)


_TASKS: dict[str, NeighborhoodTask] = {
    "xor": NeighborhoodXOR(),
    "xor-3": NeighborhoodXOR(informative=3),
    "copy": NeighborhoodCopy(),
    "unique": NeighborhoodUnique(),
    "count-distinct": CountDistinct(),
    **{f"synergy-{share}": NeighborhoodDial(informative=4, synergy=share / 100) for share in (0, 25, 50, 75, 100)},
}
#: The tasks that are available as datasets, by name.
NEIGHBORHOOD_TASKS = _TASKS | {f"{name}-tree": replace(task, graph="tree") for name, task in _TASKS.items()}
