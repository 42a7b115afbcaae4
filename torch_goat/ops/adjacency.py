import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from torch_goat.ops.checks import check_features


def to_edges(
    edge_index: Tensor,
    edge_attr: Tensor | None,
    edge_dim: int | None,
    num_sources: int,
    num_targets: int,
    checks: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Converts every form of adjacency that PyG uses to source and target ``[2, E]`` and edge features ``[E, D]``.

    Args:
        edge_index: COO ``[2, E]`` (a tensor or an :class:`~torch_geometric.EdgeIndex`), or a torch sparse matrix in
            PyG's ``adj_t`` convention: rows are targets, columns are sources.
        edge_attr: Edge features ``[E, edge_dim]`` or ``[E]``. The values of a sparse matrix are its edge features.
        edge_dim: The number of edge features that the layer reads, or ``None``.
        num_sources, num_targets: The numbers of nodes.
        checks: Whether to search edge features for NaN and infinity, see :func:`torch_goat.set_checks`.
    """
    if not isinstance(edge_index, Tensor):
        raise TypeError(
            f"edge_index must be a tensor, an EdgeIndex or a torch sparse matrix, got {type(edge_index).__name__}."
        )
    if is_torch_sparse_tensor(edge_index):
        if edge_attr is not None:
            raise ValueError(
                "edge_attr cannot be combined with a sparse adjacency, which has its own order of edges; store the "
                "features as its values or pass edge_index as [2, E]."
            )
        if (shape := list(edge_index.shape[:2])) != [num_targets, num_sources]:
            raise ValueError(
                f"the sparse adjacency has shape {shape}, expected [targets, sources] = {[num_targets, num_sources]}."
            )
        if edge_index.layout == torch.sparse_coo:
            edge_index, values = _entries(edge_index, edge_dim is not None and edge_index.requires_grad)
        else:
            edge_index, values = to_edge_index(edge_index)
        edge_index = edge_index.flip(0)
        edge_attr = None if edge_dim is None else values
    elif isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()

    if edge_index.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"edge_index must hold int64 node numbers, got {edge_index.dtype}; convert it with .long(), or a dense "
            f"adjacency with torch_geometric.utils.dense_to_sparse."
        )
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"edge_index must have shape [2, E], got {list(edge_index.shape)}.")
    edge_index = edge_index.long()
    return edge_index, check_edge_attr(edge_attr, edge_dim, edge_index.size(1), checks)


def _entries(adjacency: Tensor, gradient: bool) -> tuple[Tensor, Tensor]:
    """Rows and columns ``[2, E]`` and values of a COO matrix, not coalesced: that would merge multi-edges."""
    if not gradient:
        return adjacency._indices(), adjacency._values()
    coalesced = adjacency.coalesce()  # the only form whose values PyTorch differentiates
    if (repeated := adjacency._nnz() - coalesced._nnz()) > 0:
        raise ValueError(
            f"the sparse adjacency requires a gradient, but {repeated} of its entries repeat others and would be "
            f"merged; pass edge_index as [2, E] and the values as edge_attr."
        )
    return coalesced.indices(), coalesced.values()


def to_matrix(like: Tensor, edge_index: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Values of edges ``[E, K]`` as a sparse matrix ``[targets, sources, K]``, with its values in their order.

    ``like`` is a sparse matrix of targets and sources with the layout of the result; ``edge_index`` ``[2, E]`` holds
    sources and targets. Multi-edges stay apart.
    """
    num_targets, num_sources = like.shape[:2]
    major, minor = (0, 1) if like.layout == torch.sparse_csc else (1, 0)  # CSC is sorted by source
    order = torch.argsort(edge_index[major] * max(num_targets, num_sources) + edge_index[minor])
    (source, target), value = edge_index[:, order], value[order]
    size = (num_targets, num_sources, value.size(1))
    if like.layout == torch.sparse_coo:
        pair = torch.stack([target, source])
        distinct = bool((pair.diff() != 0).any(dim=0).all())
        return torch.sparse_coo_tensor(pair, value, size, is_coalesced=distinct), value
    ptr = torch.arange(like.size(1 - major) + 1, device=target.device)
    if like.layout == torch.sparse_csc:
        return torch.sparse_csc_tensor(torch.searchsorted(source, ptr), target, value, size), value
    return torch.sparse_csr_tensor(torch.searchsorted(target, ptr), source, value, size), value


def check_edge_attr(
    edge_attr: Tensor | None, edge_dim: int | None, num_edges: int, checks: bool | None = None
) -> Tensor | None:
    """The features of edges ``[E, D]``, which a layer with ``edge_dim`` needs and others do not take."""
    if edge_dim is None:
        if edge_attr is not None:
            raise ValueError(
                f"edge_attr of shape {list(edge_attr.shape)} was passed to a layer without edge features; "
                f"build it with edge_dim={edge_attr.size(-1) if edge_attr.dim() > 1 else 1}."
            )
        return None
    if edge_attr is None:
        raise ValueError(f"the layer was built with edge_dim={edge_dim}, but edge_attr is missing.")
    if isinstance(edge_attr, Tensor) and edge_attr.dim() == 1:
        edge_attr = edge_attr.view(-1, 1)
    check_features("edge_attr", edge_attr, edge_dim, checks)
    if edge_attr.size(0) != num_edges:
        raise ValueError(f"edge_attr has {edge_attr.size(0)} rows, but edge_index has {num_edges} edges.")
    return edge_attr
