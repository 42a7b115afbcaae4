"""The information of single columns, pooled over all neighbours, about the label."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2_contingency
from torch import Tensor
from torch_geometric.data import Data

from torch_goat.experiments.information.discretize import SAMPLES_PER_CELL, as_array, count, quantile_bins
from torch_goat.experiments.information.estimate import target_symbols

POOLS: Final = {"mean": np.add, "maximum": np.maximum, "minimum": np.minimum, "sum": np.add}
DEGREE: Final = "number of neighbours"


class PooledColumn(NamedTuple):
    """The information of a column of the neighbours about the label of a node."""

    column: str
    pool: str  # a key of POOLS, or empty for the number of neighbours
    bits: float  # bias-corrected, may be slightly negative
    p_value: float  # of a G-test, times the number of all tests (Bonferroni)


def pooled_columns(
    data: Data,
    names: Sequence[str],
    *,
    values: Tensor | None = None,
    edge_names: Sequence[str] = (),
    target_bins: int | None = None,
    nodes: Tensor | None = None,
) -> list[PooledColumn]:
    """The information of each column's mean, maximum, minimum or sum over the neighbours, whichever tells most.

    Each is cut into at most 8 quantile bins, and every labelled node with a neighbour is a sample. The nodes are taken
    as independent, although neighbourhoods overlap.

    Args:
        data: A graph with ``x``, ``edge_index`` and ``y``.
        names: The names of the columns of ``data.x``.
        values: The columns ``[N, F]`` in their own units, if ``data.x`` is standardised: sums depend on it.
        edge_names: The names of the columns of ``data.edge_attr``, which are pooled over a node's edges; if empty, they
            are not used.
        target_bins: The number of quantile bins for real labels.
        nodes: A mask of the nodes to use ``[N]``; all labelled nodes by default.

    Returns:
        One entry per column and one for the number of neighbours, the smallest p-value first.
    """
    target, labelled = target_symbols(data, data.num_nodes, target_bins, nodes)
    source, node = as_array(data.edge_index)
    kept = np.flatnonzero((source != node) & labelled[node])
    kept = kept[np.argsort(node[kept], kind="stable")]
    sample, start, degree = np.unique(node[kept], return_index=True, return_counts=True)
    if len(sample) < 2:
        return []
    label = np.unique(target[sample], return_inverse=True)[1]
    rows = as_array(data.x if values is None else values)
    of_edges = as_array(data.edge_attr) if edge_names else np.empty((0, 0))

    def columns() -> Iterator[tuple[str, NDArray[np.float64]]]:
        for number, name in enumerate(names):
            yield name, rows[source[kept], number].astype(float)
        for number, name in enumerate(edge_names):
            yield name, of_edges[kept, number].astype(float)

    found = [PooledColumn(DEGREE, "", *_information(degree.astype(float), label))]
    for name, cells in columns():
        pooled = {pool: way.reduceat(cells, start) for pool, way in POOLS.items()}
        pooled["mean"] = pooled["mean"] / degree
        tests = [PooledColumn(name, pool, *_information(one, label)) for pool, one in pooled.items()]
        found.append(min(tests, key=lambda one: (one.p_value, -one.bits)))
    count_tests = 1 + len(POOLS) * (len(names) + len(edge_names))
    corrected = (one._replace(p_value=min(1.0, count_tests * one.p_value)) for one in found)
    return sorted(corrected, key=lambda one: (one.p_value, -one.bits))


def _information(values: NDArray[np.float64], label: NDArray[np.int64]) -> tuple[float, float]:
    """The mutual information of numbers and labels ``[n]`` in bits, and the p-value of a G-test."""
    size, classes = len(label), int(label.max()) + 1
    bins = min(8, max(2, size // (SAMPLES_PER_CELL * classes)))
    table = count([quantile_bins(values.round(9), bins), label])
    statistic, p_value, free, _ = chi2_contingency(table, correction=False, lambda_="log-likelihood")
    return float(statistic - free) / (2 * size * np.log(2)), float(p_value)
