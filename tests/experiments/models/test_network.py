import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.compare import relative_error
from tests.experiments.models.cases import DETERMINISTIC, IN, OUT, RANDOM, N, graph, network, options
from tests.graphs import graphs, small_graph
from tests.nn.test_properties import far_apart
from torch_goat.experiments.models import MODELS, Network

NO_EDGES, SELF_LOOP = torch.empty(2, 0, dtype=torch.long), torch.zeros(2, 1, dtype=torch.long)
GRAPHS = (N, small_graph()), (1, NO_EDGES), (1, SELF_LOOP), (4, NO_EDGES)


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("name", MODELS)
def test_runs_on_every_graph_in_training_and_evaluation(name: str, norm: str) -> None:
    model = network(name, norm=norm, input_channels=6, last_channels=4, residual=True)
    for num_nodes, edge_index in GRAPHS:
        for training in (True, False):
            out = model.train(training)(torch.randn(num_nodes, IN), edge_index)
            assert out.shape == (num_nodes, OUT)
            assert bool(torch.isfinite(out).all())
            out.sum().backward()
    assert all(bool(torch.isfinite(parameter.grad).all()) for parameter in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_32_bit_indices_sparse_matrices_and_shuffled_edges(name: str) -> None:
    x, edge_index = graph(torch.double)
    ones = torch.ones(edge_index.size(1))
    sparse = torch.sparse_coo_tensor(edge_index.flip(0), ones, (N, N), check_invariants=True)
    model, found = network(name).double().eval(), []
    for edges in (edge_index, edge_index.int(), sparse, edge_index[:, torch.randperm(edge_index.size(1))]):
        model.zero_grad()
        out = model(x, edges)
        out.square().sum().backward()
        found.append(torch.cat([out.flatten(), *(value.grad.flatten() for value in model.parameters())]))
    assert torch.equal(found[1], found[0])  # PyTorch's gather and scatter read 32 bits wrongly in an expanded index
    assert torch.equal(found[2], found[0])
    assert relative_error(found[3], found[0]) < 1e-12


@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_every_parameter(name: str) -> None:
    model = network(name, norm="layer", input_channels=6, residual=True, dropout=0.0)
    x, edge_index = graph()
    (model(x, edge_index) * torch.randn(N, OUT)).sum().backward()
    still = [key for key, value in model.named_parameters() if value.grad is None or not bool(value.grad.any())]
    assert not still


@pytest.mark.parametrize("name", DETERMINISTIC)
@pytest.mark.parametrize("encoder", [0, 6])
def test_the_gain_is_that_of_the_input(name: str, encoder: int) -> None:
    plain, scaled = (
        network(name, input_channels=encoder, residual=True, **gain).eval() for gain in ({}, {"input_gain": 8})
    )
    scaled.load_state_dict(plain.state_dict())
    x, edge_index = graph()
    assert torch.equal(scaled(x, edge_index), plain(8 * x, edge_index))


@pytest.mark.parametrize("name", MODELS)
def test_without_dropout_training_is_evaluation_except_for_random_orders(name: str) -> None:
    model = network(name, norm="layer", dropout=0.0)
    x, edge_index = graph()
    steps = [model(x, edge_index) for _ in range(2)]
    before = torch.get_rng_state()
    out = model.eval()(x, edge_index)
    assert torch.equal(model(x, edge_index), out)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*steps) == torch.equal(steps[0], out) == (name in DETERMINISTIC)


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_repeats_from_the_state_of_the_generator(name: str) -> None:
    model = network(name, **{"attention_dropout": 0.5} if "attention_dropout" in options(name).reads() else {})
    x, edge_index = graph()
    before = torch.get_rng_state()
    out = model(x, edge_index)
    assert not torch.equal(model(x, edge_index), out)
    torch.set_rng_state(before)
    assert torch.equal(model(x, edge_index), out)


@pytest.mark.parametrize("name", DETERMINISTIC)
@settings(max_examples=25)
@given(graph=graphs(), random=st.randoms(use_true_random=False))
def test_relabelling_nodes_permutes_the_output(name: str, graph: tuple[int, Tensor], random) -> None:
    num_nodes, edge_index = graph
    last = {"last": "goat"} if name == "goat" else {}
    torch.manual_seed(0)
    model = network(name, norm="layer", residual=True, **last).double().eval()
    x = torch.randn(num_nodes, IN, dtype=torch.double)
    new = list(range(num_nodes))
    random.shuffle(new)
    new = torch.tensor(new)  # old node i becomes new[i]
    out, orderings = model(x, edge_index, return_orderings=True)
    assume(all(map(far_apart, orderings)))
    relabelled = model(x[torch.argsort(new)], new[edge_index])
    assert relative_error(relabelled[new], out) < 1e-9


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("linear", [False, True])
def test_the_chain_around_the_layers(linear: bool, norm: str) -> None:
    values = {"last_channels": 4} if linear else {}
    model = network("gcn", input_channels=6, residual=True, norm=norm, activation="relu", **values)
    x, edge_index = graph()
    for _ in range(3):
        model(x, edge_index)  # moves the running statistics
    out = model.eval()(x, edge_index)

    first, second = model.layers
    kind = {"none": torch.nn.Identity, "batch": torch.nn.BatchNorm1d, "layer": torch.nn.LayerNorm}[norm]
    norms = [kind(width).eval() for width in (8, 4)[: 1 + linear]]
    for ours, theirs in zip(model.norms, norms, strict=True):
        theirs.load_state_dict({key.split(".")[-1]: value for key, value in ours.state_dict().items()})
    x = x @ model.encoder.weight.t() + model.encoder.bias
    x = norms[0](first(x, edge_index) + x @ model.residuals[0].weight.t()).relu()
    x = second(x, edge_index) + x @ model.residuals[1].weight.t()
    if linear:
        x = norms[1](x).relu() @ model.output.weight.t() + model.output.bias
    torch.testing.assert_close(out, x)


def test_the_output_may_be_an_mlp() -> None:
    model = network("goat", num_layers=1, last_channels=6, last_heads=3, output_channels=7, dropout=0.0)
    x, edge_index = graph()
    assert model.layers[0].heads == 3
    first, _, second = model.output
    hidden = (F.elu(model.layers[0](x, edge_index)) @ first.weight.t() + first.bias).relu()  # [N, 7]
    torch.testing.assert_close(model(x, edge_index), hidden @ second.weight.t() + second.bias)
    before = first.weight.clone()
    model.reset_parameters()
    assert not torch.equal(first.weight, before)


@pytest.mark.parametrize("values", [{"last": "goat"}, {"name": "goat-paper"}, {"num_layers": 1}])
def test_neighbours_are_read_in_the_order_that_is_given(values: dict) -> None:
    model = network(**{"name": "goat", "given_order": True} | values).eval()
    x, edge_index = graph()
    key = torch.randn(N, N)
    keys = key[edge_index[0], edge_index[1]]  # the same for both edges of a pair
    out, orderings = model(x, edge_index, order_by=keys, return_orderings=True)
    assert len(orderings) == model.num_orderings
    for ordering in orderings:
        for node in range(N):
            assert int(ordering.neighbors(node)[0]) == node  # the node itself first
            read = key[ordering.neighbors(node)[1:], node].tolist()
            assert read == sorted(read, reverse=True)
    assert not torch.equal(out, model(x, edge_index, order_by=-keys))
    shuffled = torch.randperm(edge_index.size(1))
    torch.testing.assert_close(model(x, edge_index[:, shuffled], order_by=keys[shuffled]), out)


def test_dropout_is_on_the_input_of_every_layer_and_nowhere_else() -> None:
    model = network("mlp", input_channels=50, hidden_channels=50, last_channels=50, num_layers=3, dropout=0.3)
    shares: list[float] = []

    def watch(_, inputs: tuple[Tensor, ...]) -> None:
        shares.append(float((inputs[0] == 0).float().mean()))

    for module in (*model.layers, model.encoder, model.output):
        module.register_forward_pre_hook(watch)
    x, edge_index = torch.randn(200, IN), small_graph()
    model(x, edge_index)
    assert [abs(share - 0.3) < 0.03 for share in shares] == [False, True, True, True, False]
    assert shares[0] == shares[-1] == 0
    shares.clear()
    model.eval()(x, edge_index)
    assert shares == [0] * 5


@pytest.mark.parametrize(
    ("name", "values", "widths"),
    [
        ("gat", {"heads": 4}, (5, 32, 3)),
        ("gat", {"heads": 4, "head_pooling": "sum"}, (5, 8, 3)),
        ("gatv2", {"heads": 2, "head_pooling": "mean", "num_layers": 3}, (5, 8, 8, 3)),
        ("goat", {"heads": 4}, (5, 32, 3)),
        ("goat", {"heads": 4, "head_pooling": "sum", "last": "goat"}, (5, 8, 8)),
        ("goat", {"last": "goat", "last_channels": 6}, (5, 8, 6)),
        ("goat", {"num_layers": 1}, (5, 8)),
        ("goat", {"num_layers": 1, "last_heads": 4}, (5, 8)),
        ("gat", {"num_layers": 1, "last_channels": 12, "last_heads": 4}, (5, 12)),
        ("gin", {"last": "goat"}, (5, 8, 8)),
        ("sage-max", {"input_channels": 7, "last_channels": 4}, (7, 8, 4)),
    ],
)
def test_widths_of_the_layers(name: str, values: dict, widths: tuple[int, ...]) -> None:
    model = network(name, **values).eval()
    seen: list[int] = []
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].size(1)))
    model.layers[-1].register_forward_hook(
        lambda _, __, out: seen.append((out[0] if isinstance(out, tuple) else out).size(1))
    )
    assert model(*graph()).shape == (N, OUT)
    assert tuple(seen) == widths


def test_janossy_lengths_go_to_their_layers() -> None:
    lengths = [layer.length for layer in network("janossy", num_layers=4, permutation_lengths=(15, 5)).layers]
    assert lengths == [15, 5, 5, 5]
    assert network("gcn", last="janossy", permutation_lengths=(7,)).layers[1].length == 7
    assert network("sage-lstm").layers[0].length is None


@pytest.mark.parametrize(
    ("values", "count"),
    [({}, 1), ({"last": "goat"}, 2), ({"name": "goat-paper", "num_layers": 3}, 2), ({"name": "gcn"}, 0)],
)
def test_orderings_come_out_and_go_in(values: dict, count: int) -> None:
    model = network(**{"name": "goat"} | values).eval()
    x, edge_index = graph()
    out, orderings = model(x, edge_index, return_orderings=True)
    assert len(orderings) == model.num_orderings == count
    assert torch.equal(model(x, edge_index, orderings=orderings), out)
    model.reset_parameters()
    _, replayed = model(x, edge_index, orderings=orderings, return_orderings=True)
    assert replayed == orderings
    _, sorted_anew = model(x, edge_index, return_orderings=True)
    assert count == 0 or sorted_anew != orderings
    with pytest.raises(ValueError, match=f"orderings has 5 entries, but there are {count} GOAT layers"):
        model(x, edge_index, orderings=[None] * 5)


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_the_whole_state_and_reset_draws_them_anew(name: str) -> None:
    model = network(name, norm="batch", residual=True)
    fresh = network(name, norm="batch", residual=True).state_dict()
    x, edge_index = graph()
    model(x, edge_index)
    other = network(name, norm="batch", residual=True)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(x, edge_index), model.eval()(x, edge_index))
    with torch.no_grad():
        for value in model.parameters():
            value.fill_(5.0)
    model.reset_parameters()
    for key, value in model.state_dict().items():
        if torch.unique(fresh[key]).numel() == 1:  # zeros, ones, counts, mean degrees
            assert torch.equal(value, fresh[key]), key
        elif not key.endswith("bias_ih"):  # zeros, but for an open forget gate
            assert not bool((value == 5).any()), key
            assert not torch.equal(value, fresh[key]), key


@pytest.mark.parametrize("head_pooling", ["cat", "sum"])
@pytest.mark.parametrize("name", ["gat", "gatv2", "goat"])
def test_edge_features_reach_every_layer_that_reads_them(name: str, head_pooling: str) -> None:
    made = network(name, 3, heads=2, head_pooling=head_pooling, dropout=0.0).eval()
    x, edge_index = graph()
    features = torch.randn(edge_index.size(1), 3, requires_grad=True)
    made(x, edge_index, features).square().sum().backward()
    assert features.grad is not None
    assert (features.grad[edge_index[0] != edge_index[1]].abs().sum(dim=1) > 0).any()
    assert all(parameter.grad is not None for parameter in made.parameters())


def test_bad_input_is_refused() -> None:
    x, edge_index = graph()
    features = torch.randn(edge_index.size(1), 2)
    given, sparse = network("goat", given_order=True), torch.eye(N).to_sparse()
    for make, message in (
        (lambda: Network(options("gcn"), 0, 3), "at least 1, got 0 and 3"),
        (lambda: network("gat", -1), "edge_dim must be at least 0, got -1"),
        (lambda: network("gcn", 2), r"no layer of this network \(gcn -> gcn\) reads edge features"),
        (lambda: network("gcn")(x, edge_index.t()), r"edge_index must have shape \[2, E\], got \["),
        (lambda: network("gcn")(x, edge_index[0]), r"edge_index must have shape \[2, E\], got \["),
        (lambda: network("gcn")(x[:, :4], edge_index), r"x must have shape \[nodes, 5\], got \[10, 4\]"),
        (lambda: network("gat")(x, edge_index, features), r"edge_attr has shape \[\d+, 2\], but the network reads 0"),
        (lambda: given(x, edge_index), "order_by is missing, but the network has given_order=True"),
        (lambda: given(x, sparse, order_by=torch.ones(N)), "order_by cannot be combined with a sparse adjacency"),
        (lambda: network("goat")(x, edge_index, order_by=features[:, 0]), "order_by is given, .* given_order=False"),
        (lambda: network("gat", 2)(x, edge_index), "edge_attr has shape None, but the network reads 2"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@on_gpu
@pytest.mark.parametrize("name", MODELS)
def test_a_gpu_equals_the_cpu_in_evaluation(name: str) -> None:
    x, edge_index = graph(torch.double)
    model = network(name, norm="batch", residual=True).double().eval()
    expected = model(x, edge_index)
    assert relative_error(model.cuda()(x.cuda(), edge_index.cuda()).cpu(), expected) < 1e-10


@on_gpu
@pytest.mark.parametrize("name", RANDOM)
def test_training_draws_on_the_gpu(name: str) -> None:
    x, edge_index = (value.cuda() for value in graph())
    model = network(name, backend="auto").cuda()
    before, host = torch.cuda.get_rng_state(), torch.get_rng_state()
    out = model(x, edge_index)
    out.sum().backward()
    assert not torch.equal(model(x, edge_index), out)
    torch.cuda.set_rng_state(before)
    assert torch.equal(model(x, edge_index), out)
    assert torch.equal(torch.get_rng_state(), host)
