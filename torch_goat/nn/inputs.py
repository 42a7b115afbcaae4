"""The inputs of a layer in all forms that PyG allows, and the callers that a layer refuses."""

from numbers import Integral

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch_geometric.utils import is_torch_sparse_tensor

from torch_goat.nn.ordering import Ordering
from torch_goat.ops.adjacency import check_edge_attr, to_edges
from torch_goat.ops.checks import check_dtype, check_features, checks_enabled
from torch_goat.ops.neighborhoods import Neighborhoods, neighborhoods

Nodes = Tensor | tuple[Tensor, Tensor | None]


def both(channels: int | tuple[int, int]) -> tuple[int, int]:
    """A pair of widths; one width stands for two equal ones."""
    pair = channels if isinstance(channels, tuple | list) else (channels, channels)
    # Integral: numpy's numbers are whole numbers, too.
    if len(pair) != 2 or not all(isinstance(width, Integral) and width >= -1 for width in pair):
        raise ValueError(f"in_channels must be -1, a whole number or a pair of them, got {channels!r}.")
    return int(pair[0]), int(pair[1])


def numbers_of_nodes(x: Nodes, edge_index: Tensor | Neighborhoods) -> tuple[int, int] | None:
    """The numbers of sources and targets, if ``x`` does not determine them and the edges do."""
    if isinstance(edge_index, Neighborhoods):
        return edge_index.num_sources, edge_index.num_targets
    targets_without_states = isinstance(x, tuple | list) and len(x) == 2 and x[1] is None
    if targets_without_states and isinstance(edge_index, Tensor) and is_torch_sparse_tensor(edge_index):
        return edge_index.size(1), edge_index.size(0)
    return None


def node_states(
    x: Nodes,
    size: tuple[int, int] | None,
    channels: tuple[int, int],
    bipartite: bool,
    dtype: torch.dtype,
    checks: bool | None,
) -> tuple[Tensor, Tensor | None, int]:
    """The states of sources ``[S, F]`` and targets ``[T, F]`` and the number of targets, checked.

    Args:
        x: States, or a pair of the states of sources and targets, of which those of the targets may be ``None``.
        size: The numbers of sources and targets.
        channels: The widths of both.
        bipartite: Whether sources and targets are different node sets; otherwise targets are the first sources.
        dtype: The dtype of the layer's weights.
        checks: See :func:`torch_goat.set_checks`.
    """
    x_src, x_dst = (x, x if size is None or bipartite else None) if isinstance(x, Tensor) else _pair(x)
    given = [("x" if x_src is x_dst else "x[0] (sources)", x_src, channels[0])]
    if x_dst is not None and (x_dst is not x_src or channels[0] != channels[1]):
        given.append(("x[1] (targets)", x_dst, channels[1]))
    for name, states, width in given:
        check_features(name, states, width, checks)
        check_dtype(name, states, dtype)

    num_sources, num_targets = size or (None, None)
    if num_targets is None:
        num_targets = (x_src if x_dst is None else x_dst).size(0)
    if num_sources is not None and num_sources != x_src.size(0):
        raise ValueError(f"size says {num_sources} sources, but x has {x_src.size(0)} rows for them.")
    if x_dst is not None and num_targets != x_dst.size(0):
        raise ValueError(f"size says {num_targets} targets, but x has {x_dst.size(0)} rows for them.")
    if not bipartite:
        if num_targets > x_src.size(0):
            raise ValueError(
                f"{num_targets} targets cannot be the first rows of {x_src.size(0)} sources; for "
                f"different node sets build the layer with a pair of in_channels."
            )
        if x_dst is not None and x_dst.size(1) != x_src.size(1):
            raise ValueError(
                f"sources have {x_src.size(1)} channels and targets {x_dst.size(1)}; for different node sets build the "
                f"layer with a pair of in_channels."
            )
        if x_dst is None:
            x_dst = x_src if num_targets == x_src.size(0) else _first_rows(x_src, num_targets)
    return x_src, x_dst, num_targets


def _first_rows(x: Tensor, number: int) -> Tensor:
    return x[:number] if x.layout == torch.strided else x.to_sparse_coo().narrow_copy(0, 0, number)


def _pair(x: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
    if not isinstance(x, tuple | list) or len(x) != 2:
        raise TypeError(f"x must be a tensor or a pair of tensors, got {type(x).__name__}.")
    return x[0], x[1]


def layout(
    edge_index: Tensor | Neighborhoods,
    edge_attr: Tensor | None,
    edge_dim: int | None,
    num_nodes: tuple[int, int],
    add_self_loops: bool,
    flow: str,
    checks: bool | None,
) -> tuple[Neighborhoods, Tensor | None]:
    """The neighbourhoods of ``num_nodes`` sources and targets, and the features of the edges as given ``[E, D]``."""
    reverse = flow == "target_to_source"
    if not isinstance(edge_index, Neighborhoods):
        if reverse and isinstance(edge_index, Tensor) and is_torch_sparse_tensor(edge_index):
            raise ValueError("flow='target_to_source' needs edge_index as [2, E]; transpose the sparse matrix instead.")
        edge_index, edge_attr = to_edges(edge_index, edge_attr, edge_dim, *num_nodes, checks)
        return neighborhoods(edge_index, num_nodes, add_self_loops, reverse, checks), edge_attr
    hood = edge_index
    if (hood.num_sources, hood.num_targets) != num_nodes:
        raise ValueError(f"x has {num_nodes[0]} sources and {num_nodes[1]} targets, but edge_index is {hood}.")
    if hood.add_self_loops != add_self_loops:
        raise ValueError(
            f"the layer has add_self_loops={add_self_loops}, but the neighborhoods were built with "
            f"add_self_loops={hood.add_self_loops}."
        )
    return hood, check_edge_attr(edge_attr, edge_dim, hood.num_given, checks)


def check_numbering(n_id: Tensor | None, num_sources: int, in_channels: int | tuple[int, int]) -> None:
    """Raises an error unless the numbers of the sources in a larger graph, if given, are of one node set."""
    if n_id is None:
        return
    dtype = getattr(n_id, "dtype", type(n_id).__name__)
    if dtype not in (torch.int64, torch.int32):
        raise TypeError(f"n_id must be a tensor of int64 node numbers, got {dtype}.")
    if isinstance(in_channels, tuple) or n_id.shape != (num_sources,):
        raise ValueError(
            f"n_id must number the {num_sources} nodes of one set, got shape {list(n_id.shape)} for "
            f"in_channels={in_channels!r}."
        )


def check_given_order(
    ordering: object, order_by: Tensor | None, edge_index: Tensor | Neighborhoods, checks: bool | None
) -> None:
    """Raises an error for an ordering of another type, for keys that cannot order the edges, or if both are given."""
    if ordering is not None and not isinstance(ordering, Ordering):
        raise TypeError(f"ordering must be an Ordering, got {type(ordering).__name__}.")
    if order_by is None:
        return
    if ordering is not None:
        raise ValueError("ordering= and order_by= both give the order; pass one of them.")
    if isinstance(edge_index, Tensor) and is_torch_sparse_tensor(edge_index):
        raise ValueError("order_by needs edge_index as [2, E]: a sparse matrix has no order of edges as given.")
    if not isinstance(order_by, Tensor) or order_by.is_complex():
        found = getattr(order_by, "dtype", type(order_by).__name__)
        raise TypeError(f"order_by must be a tensor of real numbers, got {found}.")
    if isinstance(edge_index, Neighborhoods):
        num_edges = edge_index.num_given
    elif isinstance(edge_index, Tensor) and edge_index.dim() == 2:
        num_edges = edge_index.size(1)
    else:
        return  # an error of its own
    if order_by.shape != (num_edges,):
        raise ValueError(f"order_by must have one number per edge, [{num_edges}], got shape {list(order_by.shape)}.")
    if order_by.is_floating_point() and checks_enabled(checks) and bool(order_by.isnan().any()):
        raise ValueError(f"order_by is NaN at edge {int(order_by.isnan().nonzero()[0])}; NaN has no place in an order.")


def key_ranks(keys: Tensor, hood: Neighborhoods) -> Tensor:
    """The rank of each token's key among the distinct keys ``[E]``, from small to large, self loops last.

    Keys are numbers of the edges as given; they are compared in their own dtype, exactly.
    """
    value, order = keys.detach().sort()
    rank = torch.empty_like(order).scatter_(0, order, pad(value[1:] != value[:-1], (1, 0)).cumsum(0))
    return hood.edge_features(rank.view(-1, 1), hood.num_given)[hood.edge, 0]


@torch.compiler.assume_constant_result  # the tracer would take it for False, also in an export to ONNX
def _exports_to_onnx() -> bool:
    return torch.onnx.is_in_onnx_export()


def check_exporter() -> None:
    """Raises an error in exporters that cannot represent the layer, in which it would fail later and less clearly."""
    if torch.jit.is_tracing() or _exports_to_onnx():
        raise NotImplementedError(
            "torch.jit.trace and torch.onnx.export cannot represent reading neighbourhoods of any length with an RNN; "
            "use torch.export.export."
        )


def refuse_scripting(module: torch.nn.Module) -> None:
    """For ``__prepare_scriptable__``: raises an error in ``torch.jit.script``."""
    raise NotImplementedError(f"torch.jit.script cannot compile {type(module).__name__}; use torch.export.export.")
