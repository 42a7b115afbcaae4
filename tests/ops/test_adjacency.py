from collections.abc import Callable

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from tests.graphs import small_graph
from torch_goat.nn import GOATConv
from torch_goat.ops.adjacency import to_edges

N = 10


@pytest.mark.filterwarnings("ignore:Sparse C:UserWarning")  # PyTorch calls its CSR and CSC tensors a beta feature
@pytest.mark.parametrize("to_sparse", [to_torch_coo_tensor, to_torch_csr_tensor, to_torch_csc_tensor])
@pytest.mark.parametrize(("features", "edge_dim"), [((), 1), ((), -1), ((1,), 1), ((3,), 3), ((3,), -1)])
def test_sparse_matrices_equal_edge_lists(features: tuple[int, ...], edge_dim: int, to_sparse: Callable) -> None:
    edge_index = small_graph().unique(dim=1)
    x, edge_attr = torch.randn(N, 5), torch.randn(edge_index.size(1), *features)
    adjacency = to_sparse(edge_index.flip(0), edge_attr, size=(N, N))  # PyG's adj_t: rows are targets
    for conv, given in ((GOATConv(5, 4), None), (GOATConv(5, 4, edge_dim=edge_dim), edge_attr)):
        out, (matrix, alpha) = conv(x, adjacency, return_attention_weights=True)
        assert torch.equal(out, conv(x, edge_index, given))
        assert (matrix.shape, alpha.shape) == ((N, N, 1), (matrix._nnz(), 1))


def test_repeated_entries_of_a_sparse_matrix_are_separate_edges() -> None:
    adjacency = torch.sparse_coo_tensor(small_graph().flip(0), torch.ones(32), (N, N), check_invariants=True)
    x, conv = torch.randn(N, 5), GOATConv(5, 4)
    assert torch.equal(conv(x, adjacency), conv(x, small_graph()))
    assert not adjacency.is_coalesced()
    feature = torch.ones(3, requires_grad=True)
    adjacency = torch.sparse_coo_tensor([[1, 1, 2], [0, 0, 1]], feature, (N, N), check_invariants=True)
    with pytest.raises(ValueError, match="requires a gradient, but 1 of its entries repeat others"):
        GOATConv(5, 4, edge_dim=1)(torch.randn(N, 5), adjacency)


@pytest.mark.parametrize("coalesced", [True, False])
def test_the_values_of_a_sparse_matrix_get_their_gradient(coalesced: bool) -> None:
    edge_index = small_graph().unique(dim=1).flip(1)  # not in the order of a coalesced matrix
    feature = torch.randn(edge_index.size(1), requires_grad=True)
    adjacency = torch.sparse_coo_tensor(edge_index.flip(0), feature, (N, N), check_invariants=True)
    x, conv = torch.randn(N, 5), GOATConv(5, 4, edge_dim=1)
    out = conv(x, adjacency.coalesce() if coalesced else adjacency)
    (found,) = torch.autograd.grad(out.square().sum(), feature)
    (expected,) = torch.autograd.grad(conv(x, edge_index, feature).square().sum(), feature)
    assert torch.allclose(found, expected, atol=1e-6)
    assert expected.abs().max() > 1e-3


def test_other_types_of_edges_equal_int64_tensors() -> None:
    edge_index = EdgeIndex(small_graph(), sparse_size=(N, N))
    x, conv = torch.randn(N, 5), GOATConv(5, 4)
    for edges in (edge_index, *(edge_index.sort_by(order).values for order in ("row", "col")), small_graph().int()):
        assert torch.equal(conv(x, edges), conv(x, small_graph()))


@pytest.mark.parametrize(
    ("edge_index", "edge_attr", "edge_dim", "error", "message"),
    [
        ([[0], [1]], None, None, TypeError, "got list"),
        (torch.zeros(2, 3), None, None, TypeError, r"torch.float32; .* a dense adjacency with .*dense_to_sparse"),
        (torch.zeros(3, 2, dtype=torch.long), None, None, ValueError, r"\[3, 2\]"),
        (torch.tensor([[0], [1]]), torch.ones(1, 2), None, ValueError, "edge_dim=2"),
        (torch.tensor([[0], [1]]), None, 3, ValueError, "edge_attr is missing"),
        (torch.tensor([[0], [1]]), torch.ones(1, 2), 3, ValueError, "2 channels, but the layer was built for 3"),
        (torch.tensor([[0], [1]]), torch.ones(2, 3), 3, ValueError, "2 rows, but edge_index has 1 edges"),
        (torch.tensor([[0], [1]]), torch.ones(1, 3, dtype=torch.long), 3, TypeError, "torch.int64"),
        (torch.tensor([[0], [1]]), torch.full((1, 1), torch.nan), 1, ValueError, "non-finite value in row 0"),
        (torch.eye(3).to_sparse(), None, None, ValueError, r"\[3, 3\], expected \[targets, sources\] = \[4, 4\]"),
        (torch.eye(4).to_sparse(), torch.ones(4, 1), 1, ValueError, "cannot be combined with a sparse adjacency"),
    ],
)
def test_bad_edges_are_refused(edge_index, edge_attr, edge_dim, error, message) -> None:
    with pytest.raises(error, match=message):
        to_edges(edge_index, edge_attr, edge_dim, 4, 4)
