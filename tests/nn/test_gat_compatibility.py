"""Every call that PyG's own tests make on GATConv, made on GOATConv, and the options and conventions the two share."""

import inspect
import warnings

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GATConv
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from tests.compare import assert_close, same_up_to_rounding, with_gradients
from tests.graphs import small_graph
from torch_goat.nn import GOATConv, Neighborhoods

EDGES = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]])

# Not called here, and why:
# - SparseTensor: torch_sparse is not maintained for current PyTorch; the layer takes torch's own sparse matrices.
# - torch.jit.script: refused with an error, see test_other_exporters_are_refused.
# - normalize=True, gat_norm and remove_diag: an option that no release of PyG has, and helpers that only it uses.


def inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 8), torch.randn(2, 16)


def gat_alpha(conv: GOATConv, gat: GATConv, *arguments, **options) -> Tensor:
    """GATConv's coefficients with the weights of a GOATConv, which have the same formula."""
    linear = [gat.lin] if gat.lin is not None else [gat.lin_src, gat.lin_dst]
    ours = [conv.lin_src] if gat.lin is not None else [conv.lin_src, conv.lin_dst]
    with torch.no_grad():
        for theirs, own in zip(linear, ours, strict=True):
            theirs.weight.copy_(own.weight)
        for name in ("att_src", "att_dst"):
            getattr(gat, name).copy_(getattr(conv.attention, name).unsqueeze(0))
        if gat.edge_dim is not None:
            gat.att_edge.copy_(conv.attention.att_edge.unsqueeze(0))
            gat.lin_edge.weight.copy_(conv.attention.lin_edge.weight)
    return gat(*arguments, return_attention_weights=True, **options)[1]


def test_positional_arguments_are_those_of_gat_conv() -> None:
    for method in ("__init__", "forward"):
        ours, theirs = (
            list(inspect.signature(getattr(layer, method)).parameters.values()) for layer in (GOATConv, GATConv)
        )
        theirs = [one for one in theirs if one.kind is one.POSITIONAL_OR_KEYWORD]
        assert [one.name for one in ours[: len(theirs)]] == [one.name for one in theirs]
        assert [one.default for one in ours[: len(theirs)]] == [one.default for one in theirs]


@pytest.mark.parametrize("residual", [False, True])
def test_one_set_of_nodes(residual: bool) -> None:
    x, _ = inputs()
    adj = to_torch_csc_tensor(EDGES, size=(4, 4))
    conv = GOATConv(8, 32, heads=2, residual=residual)
    assert str(conv) == "GOATConv(8, 32, heads=2)"
    out = conv(x, EDGES)
    assert out.shape == (4, 64)
    assert torch.equal(conv(x, EDGES, size=(4, 4)), out)
    assert torch.equal(conv(x, adj.t()), out)
    again, (edge_index, alpha) = conv(x, EDGES, return_attention_weights=True)
    assert torch.equal(again, out)
    assert (edge_index.shape, alpha.shape) == ((2, 7), (7, 2))
    theirs = gat_alpha(conv, GATConv(8, 32, heads=2), x, EDGES)
    assert torch.equal(edge_index, theirs[0])
    assert same_up_to_rounding(alpha, theirs[1])


@pytest.mark.filterwarnings("ignore:residual=True has no effect:UserWarning")
@pytest.mark.parametrize("residual", [False, True])
def test_two_sets_of_nodes(residual: bool) -> None:
    x1, x2 = inputs()
    adj = to_torch_csc_tensor(EDGES, size=(4, 2))
    conv = GOATConv((8, 16), 32, heads=2, residual=residual)
    assert str(conv) == "GOATConv((8, 16), 32, heads=2)"
    out = conv((x1, x2), EDGES)
    assert out.shape == (2, 64)
    assert torch.equal(conv((x1, x2), EDGES, size=(4, 2)), out)
    assert torch.equal(conv((x1, x2), adj.t()), out)
    blind = conv((x1, None), EDGES, size=(4, 2))
    assert blind.shape == (2, 64)
    assert torch.equal(conv((x1, None), adj.t()), blind)
    # No self loops, and none of the given edges is taken for one: GATConv would drop 0 -> 0 and add 0 -> 0 and 1 -> 1.
    _, (edge_index, alpha) = conv((x1, x2), EDGES, return_attention_weights=True)
    assert torch.equal(edge_index, EDGES)
    gat = GATConv((8, 16), 32, heads=2, add_self_loops=False)
    assert same_up_to_rounding(alpha, gat_alpha(conv, gat, (x1, x2), EDGES)[1])
    with pytest.raises(ValueError, match=r"shape \[2, 4\], expected \[targets, sources\] = \[3, 4\]"):
        conv((x1, torch.randn(3, 16)), adj.t())


def test_a_residual_without_states_of_targets_is_skipped_with_one_warning() -> None:
    x1, _ = inputs()
    conv = GOATConv((8, 16), 32, residual=True)
    with pytest.warns(UserWarning, match=r"residual=True has no effect in calls with x = \(x, None\)"):
        out = conv((x1, None), EDGES, size=(4, 2))
    with warnings.catch_warnings(action="error"):
        assert torch.equal(conv((x1, None), EDGES, size=(4, 2)), out)
    conv.res = None
    assert torch.equal(conv((x1, None), EDGES, size=(4, 2)), out)


@pytest.mark.parametrize("fill_value", [0.5, "mean", "add", "min", "max", "mul", torch.tensor([0.1, 0.2, 0.3, 0.4])])
@pytest.mark.parametrize("edge_dim", [1, 4])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_edge_features(edge_dim: int, fill_value: float | str | Tensor, flow: str) -> None:
    if isinstance(fill_value, Tensor):
        fill_value = fill_value[:edge_dim]
    x, edge_index = (
        torch.randn(4, 8),
        torch.tensor([[0, 1, 2, 3, 2], [1, 0, 1, 1, 2]]),
    )  # no other edge points to 2 or 3
    edge_attr = torch.randn(5) if edge_dim == 1 else torch.randn(5, 4)
    options = {"heads": 2, "edge_dim": edge_dim, "fill_value": fill_value, "flow": flow}
    conv = GOATConv(8, 32, **options)
    out, (edges, alpha) = conv(x, edge_index, edge_attr, return_attention_weights=True)
    assert out.shape == (4, 64)
    wide = edge_attr.view(5, -1)  # PyG expands a tensor to features of two dimensions only
    theirs = gat_alpha(conv, GATConv(8, 32, **options), x, edge_index, wide)
    assert torch.equal(edges, theirs[0])
    assert same_up_to_rounding(alpha, theirs[1])


def test_a_fill_value_of_another_width_is_refused() -> None:
    conv = GOATConv(8, 4, edge_dim=4, fill_value=torch.ones(3))
    with pytest.raises(ValueError, match=r"fill_value has shape \[3\], expected \[4\] or \[4, 4\]"):
        conv(torch.randn(4, 8), EDGES, torch.randn(4, 4))


def test_an_empty_graph() -> None:
    assert GOATConv(8, 32, heads=2)(torch.randn(0, 8), torch.empty(2, 0, dtype=torch.long)).shape == (0, 64)


def test_heads_are_averaged_without_concat() -> None:
    x, _ = inputs()
    joined, averaged = GOATConv(8, 6, 3, bias=False), GOATConv(8, 6, 3, False, bias=False)
    averaged.load_state_dict(joined.state_dict())
    assert same_up_to_rounding(averaged(x, EDGES), joined(x, EDGES).view(4, 3, 6).mean(dim=1))
    assert (joined.concat, averaged.concat, averaged.head_pooling) == (True, False, "mean")


def test_flow_from_target_to_source() -> None:
    x1, x2 = inputs()
    conv, back = GOATConv(8, 6, heads=2), GOATConv(8, 6, heads=2, flow="target_to_source")
    back.load_state_dict(conv.state_dict())
    edge_index = small_graph(4, 9)
    assert torch.equal(back(x1, edge_index), conv(x1, edge_index.flip(0)))
    assert torch.equal(back(x1, Neighborhoods.from_edge_index(edge_index.flip(0), 4)), back(x1, edge_index))
    with pytest.raises(ValueError, match="flow='target_to_source' needs edge_index as"):
        back(x1, to_torch_csr_tensor(edge_index, size=(4, 4)))
    pair = GOATConv((8, 16), 6, heads=2, flow="target_to_source")
    out, (edges, alpha) = pair((x1, x2), EDGES.flip(0), size=(4, 2), return_attention_weights=True)
    assert out.shape == (2, 12)
    theirs = GATConv((8, 16), 6, heads=2, flow="target_to_source", add_self_loops=False)
    expected = gat_alpha(pair, theirs, (x1, x2), EDGES.flip(0))
    assert torch.equal(edges, expected[0])
    assert same_up_to_rounding(alpha, expected[1])


@pytest.mark.parametrize("width", [1, 7])
@pytest.mark.parametrize("backend", ["auto", "torch", "reference"])
def test_an_odd_width_drops_the_last_column_of_the_backward_direction(width: int, backend: str) -> None:
    conv, x = GOATConv.paper(8, width, heads=2, backend=backend).double(), torch.randn(4, 8).double()
    out, ordering = conv(x, EDGES, return_ordering=True)
    assert out.shape == (4, 2 * width)
    z = conv.lin_src(x).view(4, 2, width)
    for node in range(4):
        neighbors = ordering.neighbors(node, 1)
        module = conv.rnn.as_torch(1)
        assert (module.hidden_size, module.bidirectional) == ((width + 1) // 2, True)
        state = module(ordering.weights(node, 1).unsqueeze(-1) * z[neighbors, 1])[1][0].flatten()
        assert same_up_to_rounding(out[node, width:], state[:width])


@pytest.mark.parametrize("to_sparse", [to_torch_coo_tensor, to_torch_csr_tensor, to_torch_csc_tensor])
@pytest.mark.parametrize("add_self_loops", [True, False])
def test_attention_weights_of_a_sparse_matrix(to_sparse, add_self_loops: bool) -> None:
    x, edge_index = torch.randn(4, 8), torch.tensor([[3, 0, 1, 2, 2, 3], [1, 0, 0, 1, 3, 2]])
    adj = to_sparse(edge_index.flip(0), size=(4, 4))
    conv = GOATConv(8, 4, heads=2, add_self_loops=add_self_loops)
    _, (edges, by_edge) = conv(x, edge_index, return_attention_weights=True)
    expected = torch.zeros(4, 4, 2).index_put((edges[1], edges[0]), by_edge)
    _, (matrix, alpha) = conv(x, adj, return_attention_weights=True)
    assert (matrix.layout, matrix.shape) == (adj.layout, (4, 4, 2))
    assert torch.equal(matrix.values(), alpha)
    assert torch.equal(matrix.to_dense() if matrix.layout != torch.sparse_csc else dense(matrix), expected)


def dense(matrix: Tensor) -> Tensor:
    """A hybrid CSC matrix, which PyTorch cannot convert itself."""
    column = torch.repeat_interleave(matrix.ccol_indices().diff())
    return torch.zeros(matrix.shape).index_put((matrix.row_indices(), column), matrix.values())


def test_multi_edges_of_a_sparse_matrix_stay_apart() -> None:
    adj = torch.sparse_coo_tensor(torch.tensor([[1, 1, 0], [0, 0, 1]]), torch.ones(3), (2, 2))
    _, (matrix, alpha) = GOATConv(8, 4)(torch.randn(2, 8), adj, return_attention_weights=True)
    assert (matrix._nnz(), matrix.is_coalesced(), alpha.shape) == (5, False, (5, 1))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # PyTorch's tracer does it
@pytest.mark.parametrize("build", [False, True], ids=["edge_index", "layout"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"rnn": "gru", "attention": "gatv2", "add_self_loops": False}, {"rnn": "mingru"}, {"rnn": "minlstm"}],
)
def test_compile_without_graph_breaks_for_any_size(options, dynamic: bool | None, build: bool) -> None:
    conv = GOATConv(8, 4, heads=2, **options).double()
    torch._dynamo.reset()
    compiled = torch.compile(conv, dynamic=dynamic, fullgraph=True, backend="aot_eager")
    for num_nodes, num_edges in ((4, 9), (7, 30)):
        x, edge_index = torch.randn(num_nodes, 8).double().requires_grad_(), small_graph(num_nodes, num_edges)
        edges = Neighborhoods.from_edge_index(edge_index, num_nodes, add_self_loops=conv.add_self_loops)
        given = edges if build else edge_index
        found, expected = (with_gradients(conv, run(x, given), x) for run in (compiled, conv))
        assert_close(found, expected, 1e-12)


def test_a_compiled_layer_refuses_nodes_that_are_not_there() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(GOATConv(8, 4), backend="eager", fullgraph=True)
    with pytest.raises(IndexError, match="edge_index has node 9, but there are 4 nodes"):
        compiled(torch.randn(4, 8), torch.tensor([[0], [9]]))


def test_export() -> None:
    conv, x = GOATConv(8, 4, heads=2), torch.randn(4, 8)
    program = torch.export.export(conv, (x, EDGES))
    assert torch.equal(program.module()(x, EDGES), conv(x, EDGES))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_other_exporters_are_refused(monkeypatch) -> None:
    conv, x = GOATConv(8, 4), torch.randn(4, 8)
    for refused in (lambda: torch.jit.trace(conv, (x, EDGES)), lambda: torch.jit.script(torch.nn.ModuleList([conv]))):
        with pytest.raises(NotImplementedError, match=r"torch\.jit.*use torch\.export\.export"):
            refused()
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    with pytest.raises(NotImplementedError, match=r"torch\.onnx\.export.*use torch\.export\.export"):
        conv(x, EDGES)


@pytest.mark.parametrize("rnn", ["lstm", "mingru", "minlstm"])
def test_functional_gradients_are_computed_by_the_reference(rnn: str) -> None:
    conv, x = GOATConv(8, 4, heads=2, rnn=rnn, backend="reference").double(), torch.randn(4, 8).double()
    weights = dict(conv.named_parameters())

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(conv, weights, (x, EDGES)).square().sum()

    found = torch.func.grad(loss, argnums=(0, 1))(weights, x)
    expected = torch.autograd.grad(loss(weights, x.requires_grad_()), [*weights.values(), x])
    for ours, theirs in zip([*found[0].values(), found[1]], expected, strict=True):
        assert same_up_to_rounding(ours, theirs)
    for backend in ("torch", "auto"):
        conv = GOATConv(8, 4, backend=backend)
        with pytest.raises(RuntimeError, match=r"torch\.func.*backend='reference'"):
            torch.func.grad(lambda x, conv=conv: conv(x, EDGES).sum())(torch.randn(4, 8))
