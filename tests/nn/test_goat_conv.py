import pytest
import torch
from torch_geometric.data import Batch, Data

from tests.compare import relative_error, same_up_to_rounding
from tests.graphs import small_graph
from tests.nn.test_attention import Dot
from torch_goat.nn import GOATConv

N = 10


def test_heads_are_joined() -> None:
    x = torch.randn(N, 5)
    conv = GOATConv(5, 4, heads=3, bias=False)
    heads = conv(x, small_graph()).view(N, 3, 4)
    for head_pooling, expected in [("sum", heads.sum(dim=1)), ("mean", heads.mean(dim=1))]:
        pooled = GOATConv(5, 4, heads=3, bias=False, head_pooling=head_pooling)
        pooled.load_state_dict(conv.state_dict())
        assert same_up_to_rounding(pooled(x, small_graph()), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_a_target_without_neighbours_gets_zeros_plus_bias(bias: bool) -> None:
    conv = GOATConv(5, 4, heads=2, add_self_loops=False, bias=bias)
    if bias:
        torch.nn.init.uniform_(conv.bias)
    out = conv(torch.randn(N, 5), small_graph())
    expected = conv.bias.expand(2, -1) if bias else torch.zeros(2, 8)
    assert torch.equal(out[-2:], expected)


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("num_nodes", [0, 1, 4])
def test_a_graph_without_edges(num_nodes: int, add_self_loops: bool) -> None:
    conv = GOATConv.paper(5, 4, heads=2, add_self_loops=add_self_loops)
    x = torch.randn(num_nodes, 5, requires_grad=True)
    out, (edge_index, alpha), ordering = conv(
        x, torch.empty(2, 0, dtype=torch.long), return_attention_weights=True, return_ordering=True
    )
    assert out.shape == (num_nodes, 8)
    assert edge_index.size(1) == alpha.size(0) == num_nodes * add_self_loops
    assert bool((alpha == 1).all())
    assert ordering.num_nodes == num_nodes
    out.sum().backward()
    if num_nodes and add_self_loops:
        sequence = conv.lin_src(x).view(num_nodes, 2, 4)[:, 1].unsqueeze(0)  # one step, one sequence a node
        state = conv.rnn.as_torch(1)(sequence)[1][0]
        assert same_up_to_rounding(out[:, 4:], state.transpose(0, 1).flatten(1))
    else:
        assert not out.any()


def test_a_self_loop_that_is_there_is_replaced() -> None:
    edges = torch.tensor([[0, 1], [1, 2]])
    loops = torch.tensor([[0, 1, 1, 2, 2], [1, 2, 1, 2, 2]])
    conv, x = GOATConv(5, 4), torch.randn(3, 5)
    assert torch.equal(conv(x, edges), conv(x, loops))
    conv.add_self_loops = False
    assert not torch.equal(conv(x, edges), conv(x, loops))


def test_multi_edges_are_read_once_each() -> None:
    conv, x = GOATConv(5, 4), torch.randn(3, 5)
    once, thrice = torch.tensor([[0], [1]]), torch.tensor([[0, 0, 0], [1, 1, 1]])
    ordering = conv(x, thrice, return_ordering=True)[1]
    assert sorted(ordering.neighbors(1).tolist()) == [0, 0, 0, 1]
    assert relative_error(conv(x, once)[1], conv(x, thrice)[1]) > 1e-3


def test_a_hub() -> None:
    leaves = 3000
    edge_index = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)])
    conv = GOATConv.paper(3, 4).double()
    x = torch.randn(leaves + 1, 3, dtype=torch.double)
    out, ordering = conv(x, edge_index, return_ordering=True)
    tokens = ordering.weights(0).unsqueeze(-1) * conv.lin_src(x)[ordering.neighbors(0)]
    assert relative_error(out[0], conv.rnn.as_torch()(tokens)[1][0].flatten()) < 1e-10


def test_batched_graphs_do_not_meet() -> None:
    conv = GOATConv(5, 4, heads=2).double()
    graphs = [Data(torch.randn(N, 5, dtype=torch.double), small_graph(seed=seed)) for seed in range(3)]
    batch = Batch.from_data_list(graphs)
    out = conv(batch.x, batch.edge_index)
    expected = torch.cat([conv(graph.x, graph.edge_index) for graph in graphs])
    assert relative_error(out, expected) < 1e-12


def test_mini_batches_equal_the_whole_graph() -> None:
    conv = GOATConv(5, 4, heads=2).double()
    x, edge_index = torch.randn(N, 5, dtype=torch.double), small_graph()
    whole = conv(x, edge_index)
    wanted = torch.tensor([6, 2, 8])
    inner = torch.isin(edge_index[1], wanted)
    others = edge_index[0, inner][~torch.isin(edge_index[0, inner], wanted)].unique()
    n_id = torch.cat([wanted, others])
    local = torch.full((N,), -1).scatter(0, n_id, torch.arange(n_id.numel()))
    batch_edges = local[edge_index[:, inner]]
    for pair in [(x[n_id], x[wanted]), (x[n_id], None)]:
        out = conv(pair, batch_edges, size=(n_id.numel(), 3))
        assert relative_error(out, whole[wanted]) < 1e-12


@pytest.mark.parametrize("attention", ["gat", "gatv2"])
@pytest.mark.parametrize("targets", [True, False])
def test_different_node_sets(targets: bool, attention: str) -> None:
    conv = GOATConv((5, 3), 4, heads=2, add_self_loops=False, attention=attention)
    x = (torch.randn(4, 5), torch.randn(2, 3) if targets else None)
    edge_index = torch.tensor([[0, 1, 2, 3, 3], [0, 0, 0, 1, 1]])
    out, ordering = conv(x, edge_index, size=(4, 2), return_ordering=True)
    assert out.shape == (2, 8)
    assert sorted(ordering.neighbors(1).tolist()) == [3, 3]


@pytest.mark.parametrize("selection", ["random", "top"])
def test_no_node_of_another_set_is_the_node_itself(selection: str) -> None:
    conv = GOATConv((5, 3), 4, add_self_loops=False, max_neighbors=2, neighbor_selection=selection)
    edge_index = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3], [0, 0, 0, 0, 5, 5, 5, 5]])  # source 0 is not target 0
    _, ordering = conv((torch.randn(4, 5), torch.randn(6, 3)), edge_index, return_ordering=True)
    assert ordering.ptr.diff().tolist() == [2, 0, 0, 0, 0, 2]


def test_attention_weights_are_by_input_edge() -> None:
    conv, x, edge_index = GOATConv(5, 4, heads=3), torch.randn(N, 5), small_graph()
    _out, (edges, alpha) = conv(x, edge_index, return_attention_weights=True)
    proper = edge_index[:, edge_index[0] != edge_index[1]]
    assert torch.equal(edges, torch.cat([proper, torch.arange(N).expand(2, -1)], dim=1))
    total = torch.zeros(N, 3).index_add(0, edges[1], alpha)
    assert torch.allclose(total, torch.ones(N, 3))
    ordering = conv(x, edge_index, return_ordering=True)[1]
    for node in range(N):
        of_node = {int(j): a for (j, i), a in zip(edges.t().tolist(), alpha[:, 1], strict=True) if i == node}
        for neighbor, weight in zip(ordering.neighbors(node, 1).tolist(), ordering.weights(node, 1), strict=True):
            assert torch.equal(of_node[neighbor], weight)


def test_dropout_acts_on_coefficients_in_training_only() -> None:
    conv, x, edge_index = GOATConv(5, 4, heads=2, dropout=0.5), torch.randn(N, 5), small_graph()
    trained, (_, alpha), ordering = conv(x, edge_index, return_attention_weights=True, return_ordering=True)
    conv.eval()
    out, (_, eval_alpha), eval_ordering = conv(x, edge_index, return_attention_weights=True, return_ordering=True)
    assert torch.equal(alpha, eval_alpha)
    assert ordering == eval_ordering
    assert not torch.equal(trained, out)
    conv.dropout = 1.0  # every input is zero: the RNN sees only its biases, and only the number of steps
    conv.train()
    blind = conv(x, edge_index)
    assert torch.equal(blind, conv(torch.randn(N, 5), edge_index))


def test_residual_adds_a_linear_map_of_the_target() -> None:
    conv, x = GOATConv(5, 4, heads=2, residual=True), torch.randn(N, 5)
    out = conv(x, small_graph())
    linear = conv.res(x)
    conv.res = None
    assert same_up_to_rounding(out, conv(x, small_graph()) + linear)


@pytest.mark.parametrize("selection", ["random", "top"])
def test_selection_runs_over_what_is_kept(selection: str) -> None:
    conv = GOATConv(5, 4, heads=2, max_neighbors=2, neighbor_selection=selection).eval()
    x, edge_index = torch.randn(N, 5), small_graph()
    out, (edges, alpha), ordering = conv(x, edge_index, return_attention_weights=True, return_ordering=True)
    assert torch.allclose(torch.zeros(N, 2).index_add(0, edges[1], alpha), torch.ones(N, 2))
    full = GOATConv(5, 4, heads=2)
    full.load_state_dict(conv.state_dict())
    full_ordering = full(x, edge_index, return_ordering=True)[1]
    for node in range(N):
        for head in range(2):
            kept, every = (o.neighbors(node, head).tolist() for o in (ordering, full_ordering))
            others = [j for j in every if j != node]
            assert node in kept
            assert len(kept) == 1 + min(2, len(others))
            if selection == "top":
                assert [j for j in kept if j != node] == others[:2]
    assert torch.equal(out, conv(x, edge_index))
    if selection == "top":
        assert torch.equal(out, conv(x, edge_index, ordering=ordering))


def test_random_selection_changes_in_training_only() -> None:
    conv = GOATConv(5, 4, max_neighbors=1)
    edge_index = torch.stack([torch.arange(1, N), torch.zeros(N - 1, dtype=torch.long)])

    def draws() -> set[int]:
        orderings = [conv(torch.randn(N, 5), edge_index, return_ordering=True)[1] for _ in range(30)]
        return {int(ordering.source.sum()) for ordering in orderings}

    assert len(draws()) > 3
    conv.eval()
    assert len(draws()) == 1


@pytest.mark.filterwarnings("ignore:Sparse C:UserWarning")  # PyTorch calls its CSR and CSC tensors a beta feature
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tied", [False, True])
def test_sparse_states_equal_dense_ones(tied: bool, dtype: torch.dtype, layout: torch.layout) -> None:
    conv, x = GOATConv(5, 4, heads=2, residual=True).to(dtype), torch.randn(N, 5).relu().to(dtype)
    if tied:  # Algorithm 1 compares the states
        torch.nn.init.zeros_(conv.attention.att_src)
    dense, sparse = (conv(states, small_graph()) for states in (x, x.to_sparse(layout=layout)))
    assert same_up_to_rounding(sparse, dense)
    first, second = (torch.autograd.grad(out.square().sum(), conv.lin_src.weight)[0] for out in (sparse, dense))
    assert same_up_to_rounding(first, second)
    x[3, 1] = torch.nan
    with pytest.raises(ValueError, match="x has a non-finite value in row 3"):
        conv(x.to_sparse(layout=layout), small_graph())


@pytest.mark.filterwarnings("ignore:Sparse C:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_the_first_of_sparse_states_are_targets(layout: torch.layout) -> None:
    conv, x = GOATConv(5, 4, attention="gatv2", residual=True).double(), torch.randn(N, 5).relu().double()
    edge_index = small_graph() % torch.tensor([[N], [4]])
    dense, sparse = (conv(states, edge_index, size=(N, 4)) for states in (x, x.to_sparse(layout=layout)))
    assert same_up_to_rounding(sparse, dense)


def test_replayed_order_with_present_coefficients() -> None:
    x, edge_index = torch.randn(N, 5), small_graph()
    first, second = GOATConv(5, 4, heads=2), GOATConv(5, 4, heads=2)
    ordering = first(x, edge_index, return_ordering=True)[1]
    assert torch.equal(first(x, edge_index, ordering=ordering), first(x, edge_index))
    out, (_, alpha), replayed = second(
        x, edge_index, ordering=ordering, return_attention_weights=True, return_ordering=True
    )
    own, (_, own_alpha), own_ordering = second(x, edge_index, return_attention_weights=True, return_ordering=True)
    assert replayed == ordering
    assert own_ordering != ordering
    assert torch.allclose(alpha, own_alpha)
    assert not torch.allclose(out, own)
    shuffled = torch.randperm(edge_index.size(1))
    assert torch.equal(second(x, edge_index[:, shuffled], ordering=ordering), out)
    compiled = torch.compile(second, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x, edge_index, ordering=ordering), out)


@pytest.mark.parametrize(
    ("options", "num_nodes", "seed", "message"),
    [
        ({}, N, 1, "another graph"),
        ({}, 12, 0, "another graph: it has 10 nodes, this one 12"),
        ({"heads": 1}, N, 0, "2 heads, but the layer has 1"),
        ({"max_neighbors": 3}, N, 0, "random selection"),
        ({"max_neighbors": 1, "neighbor_selection": "top"}, N, 0, "another graph"),
    ],
)
def test_orderings_that_do_not_fit_are_refused(options: dict, num_nodes: int, seed: int, message: str) -> None:
    ordering = GOATConv(5, 4, heads=2)(torch.randn(N, 5), small_graph(), return_ordering=True)[1]
    with pytest.raises(ValueError, match=message):
        GOATConv(5, 4, **{"heads": 2} | options)(torch.randn(num_nodes, 5), small_graph(seed=seed), ordering=ordering)


def test_a_users_attention_and_rnn() -> None:
    conv = GOATConv.paper(5, 3, heads=2, attention=Dot(), rnn=torch.nn.GRU)
    x, edge_index = torch.randn(N, 5), small_graph()
    out, ordering = conv(x, edge_index, return_ordering=True)
    z = conv.lin_src(x).view(N, 2, 3)
    for node in (0, 3):
        neighbors = ordering.neighbors(node, 1)
        assert torch.allclose(ordering.scores(node, 1), z[neighbors, 1] @ z[node, 1], atol=1e-6)
        sequence = ordering.weights(node, 1).unsqueeze(-1) * z[neighbors, 1]
        state = conv.rnn.as_torch(1)(sequence)[1].flatten()
        assert same_up_to_rounding(out[node, 3:], state)
