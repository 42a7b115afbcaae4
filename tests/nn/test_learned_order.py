"""``order_noise``: the gradient that the order gets in training."""

import copy
import pickle
from functools import partial
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Module, Parameter

from tests.backends import AVAILABLE, device_of
from tests.compare import assert_close, relative_error, with_gradients
from tests.graphs import small_graph
from torch_goat.nn import GOAT, GOATConv
from torch_goat.ops.plackett_luce.torch import EPS


class GivenScores(Module):
    """An attention whose scores are a parameter ``[E, K]``, so that their gradient can be read."""

    def __init__(self, score: Tensor) -> None:
        super().__init__()
        self.score = Parameter(score)

    def forward(self, target: Tensor, source: Tensor, edge_attr: Tensor | None) -> Tensor:
        return self.score


def order_gradient(scores: Tensor, copies: int, noise: float, **options: Any) -> tuple[Tensor, Tensor, GOATConv]:
    """The order's part of the gradient ``[copies, n, K]`` in copies of a neighbourhood, ``dL/dh``, and the layer."""
    size, heads = scores.shape
    given = GivenScores(scores.repeat(copies, 1))
    conv = GOATConv(
        (4, 4), 4, heads, attention=given, mean_residual=False, scaling="size", backend="torch", **options
    ).double()
    edge_index = torch.stack([torch.arange(size).repeat(copies), torch.arange(copies).repeat_interleave(size)])
    x, g = torch.randn(size, 4, dtype=torch.double), torch.randn(heads * 4, dtype=torch.double)
    found = []
    for conv.order_noise in (noise, 0.0):
        loss = (conv((x, None), edge_index, size=(size, copies)) * g).sum()
        found.append(torch.autograd.grad(loss, given.score)[0].view(copies, size, heads))
    conv.x = x
    return found[0] - found[1], g.view(heads, 4), conv


def test_the_mean_is_the_gradient_of_the_expected_loss() -> None:
    """By enumeration of all orders of five neighbours, with PyTorch's own LSTM."""
    noise, draws = 0.7, 20_000
    scores = torch.tensor([[0.2, -0.3, 0.9, 0.0, -0.8], [1.0, 0.7, -0.4, 0.1, 0.3]], dtype=torch.double).t()
    found, g, conv = order_gradient(scores, draws, noise)
    z = conv.lin_src(conv.x).view(5, 2, 4).detach()
    orders = torch.tensor(list(permutations(range(5))))  # [120, 5]
    for head in range(2):
        score = scores[:, head].clone().requires_grad_()
        alpha = score.detach().softmax(dim=0)
        logit = (score - score.mean()) / (score.var(correction=0) + EPS).sqrt() / noise
        ordered = logit[orders]  # [120, 5]
        log_probs = (ordered - torch.stack([ordered[:, p:].logsumexp(dim=1) for p in range(5)], dim=1)).sum(dim=1)
        read = (5 * alpha.view(-1, 1) * z[:, head])[orders]  # [120, 5, 4]
        _, (h, _) = conv.rnn.as_torch(head)(read.transpose(0, 1))  # [2, 120, 2]
        loss = h.detach().transpose(0, 1).flatten(1) @ g[head]
        expected = torch.autograd.grad(log_probs.exp() @ loss, score)[0]
        error = found[..., head].std(dim=0) / draws**0.5
        assert ((found[..., head].mean(dim=0) - expected).abs() < 4 * error).all()


def test_descent_raises_the_score_of_the_neighbour_that_should_come_first() -> None:
    """Two neighbours: a drawn order is the layer's, without effect, or the other, whose loss is worked out by hand."""
    scores = torch.tensor([[0.1], [0.0]], dtype=torch.double)
    found, g, conv = order_gradient(scores, 50, 1.0, rnn="rnn", bidirectional=False)
    first, second = 2 * scores.softmax(dim=0) * conv.lin_src(conv.x)
    w_ih, w_hh = conv.rnn.weight_ih[0, 0], conv.rnn.weight_hh[0, 0]
    bias = conv.rnn.bias_ih[0, 0] + conv.rnn.bias_hh[0, 0]

    def loss(one: Tensor, two: Tensor) -> Tensor:
        h = torch.tanh(w_ih @ one + bias)
        return g[0] @ torch.tanh(w_ih @ two + w_hh @ h + bias)

    better = 0 if loss(first, second) < loss(second, first) else 1
    drawn = found[found.abs().sum(dim=(1, 2)) > 0]
    assert 0 < len(drawn) < 50
    assert (drawn[:, better] < 0).all()
    assert (drawn[:, 1 - better] > 0).all()


def test_the_same_dropped_coefficients_in_both_orders() -> None:
    """With all coefficients dropped both orders read zeros, and no order is better."""
    found, _, _ = order_gradient(torch.randn(5, 2, dtype=torch.double), 20, 0.5, dropout=1.0)
    assert not found.any()


def build(**options: Any) -> GOATConv:
    torch.manual_seed(1)
    return GOATConv(6, 4, 2, order_noise=0.5, **options).double()


def run(conv: GOATConv, *args: Any, **named: Any) -> dict[str, Tensor]:
    """Output and gradients with fixed draws."""
    torch.manual_seed(2)
    return with_gradients(conv, conv(*args, **named))


@pytest.mark.parametrize(
    "options",
    [
        {"attention": "gatv2"},
        {"rnn": "gru", "bidirectional": False},
        {"rnn": "minlstm"},
        {"rnn": lambda c_in, c_out: torch.nn.LSTM(c_in, c_out)},
        {"head_pooling": "sum", "residual": True, "dropout": 0.4, "state_dropout": 0.3},
        {"concat": False, "state_norm": True},
        {"edge_dim": 3},
        {"max_neighbors": 2, "neighbor_selection": "top"},
        {"max_neighbors": 2},
        {"attention": torch.nn.Bilinear(4, 4, 1), "edge_dim": None},
    ],
    ids=lambda options: "-".join(options),
)
def test_changes_gradients_alone(options: dict[str, Any]) -> None:
    """The output stays the same to the bit; scores get another gradient; what is after the RNN does not."""
    if isinstance(options.get("attention"), Module):
        bilinear = options["attention"].double()

        class Pairs(Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = bilinear

            def forward(self, target: Tensor, source: Tensor, edge_attr: Tensor | None) -> Tensor:
                return self.inner(target.contiguous(), source.contiguous()).squeeze(-1)

        options = {"attention": Pairs()}
    conv, edge_index = build(**options), small_graph()
    x = torch.randn(10, 6, dtype=torch.double)
    edge_attr = torch.randn(edge_index.size(1), 3, dtype=torch.double) if conv.edge_dim else None
    found = run(conv, x, edge_index, edge_attr)
    conv.order_noise = 0.0
    plain = run(conv, x, edge_index, edge_attr)
    assert torch.equal(found["output"], plain["output"])
    scores = {name for name in plain if name.startswith("attention")}
    assert scores
    assert any(not torch.equal(found[name], plain[name]) for name in scores)
    after = {name for name in plain if name.startswith(("rnn", "bias", "res"))}
    assert_close({name: found[name] for name in after}, {name: plain[name] for name in after}, 1e-14)


def test_bipartite_mini_batch() -> None:
    conv, x = build(), torch.randn(7, 6, dtype=torch.double)
    edges = torch.tensor([[3, 4, 5, 6, 1, 0], [0, 0, 1, 1, 2, 2]])
    found = run(conv, (x, x[:3]), edges)
    conv.order_noise = 0.0
    assert not torch.equal(found["attention.att_src"], run(conv, (x, x[:3]), edges)["attention.att_src"])


@pytest.mark.parametrize("backend", [*AVAILABLE, "reference"])
def test_backends_agree(backend: str) -> None:
    """A device has its own random numbers, so that the draws agree on a CPU alone."""
    conv, x, edges = build(backend="torch"), torch.randn(10, 6, dtype=torch.double), small_graph()
    expected = run(conv, x, edges)
    conv.rnn.backend, device = backend, device_of(backend)
    if device.type == "cpu":
        assert_close(run(conv, x, edges), expected, 1e-10)
    else:
        found = with_gradients(conv.to(device), conv(x.to(device), edges.to(device)).cpu())
        assert relative_error(found["output"].cpu(), expected["output"]) < 1e-10
        assert not torch.equal(found["attention.att_src"].cpu(), expected["attention.att_src"])


def test_draws_repeat_and_follow_the_generator() -> None:
    conv, x, edges = build(), torch.randn(10, 6, dtype=torch.double), small_graph()
    first, again = run(conv, x, edges), run(conv, x, edges)
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = with_gradients(conv, conv(x, edges))
    assert not torch.equal(first["attention.att_src"], other["attention.att_src"])


@pytest.mark.parametrize("case", ["evaluation", "no gradient", "replayed", "order_by"])
def test_draws_nothing_where_the_order_cannot_learn(case: str) -> None:
    conv, x, edges = build(), torch.randn(10, 6, dtype=torch.double), small_graph()
    options: dict[str, Any] = {}
    if case == "replayed":
        options["ordering"] = conv(x, edges, return_ordering=True)[1]
    if case == "order_by":
        options["order_by"] = torch.arange(edges.size(1))
    conv.train(case != "evaluation")
    before = torch.get_rng_state()
    with torch.set_grad_enabled(case != "no gradient"):
        conv(x, edges, **options)
    assert torch.equal(torch.get_rng_state(), before)


def test_single_neighbours_equal_scores_and_isolated_nodes() -> None:
    conv, x = build(add_self_loops=False, dropout=0.5), torch.randn(6, 6, dtype=torch.double)
    x[2:] = 0  # equal states: equal scores
    edges = torch.tensor([[0, 2, 3, 4, 5, 0, 2], [1, 2, 2, 2, 2, 3, 3]])
    assert all(value.isfinite().all() for value in run(conv, x, edges).values())
    empty = edges[:, :0]
    assert all(value.isfinite().all() for value in run(conv, x, empty).values())


def test_a_hub_of_100_000_neighbours() -> None:
    conv = GOATConv(2, 2, bidirectional=False, order_noise=0.1)
    edges = torch.stack([torch.arange(1, 100_001), torch.zeros(100_000, dtype=torch.long)])
    found = run(conv, torch.randn(100_001, 2), edges)
    assert all(value.isfinite().all() for value in found.values())


def test_autocast() -> None:
    conv, x, edges = build().float(), torch.randn(10, 6), small_graph()
    with torch.autocast("cpu", torch.bfloat16):
        found = run(conv, x, edges)
        conv.order_noise = 0.0
        plain = run(conv, x, edges)
    assert torch.equal(found["output"], plain["output"])
    assert not torch.equal(found["attention.att_src"], plain["attention.att_src"])


def test_compiles_to_the_same_gradients_also_with_a_new_noise() -> None:
    """Annealing must not compile the layer again: PyTorch gives up after eight times."""
    torch._dynamo.reset()
    conv, x, edges = build(), torch.randn(10, 6, dtype=torch.double), small_graph()
    compiled = torch.compile(conv, dynamic=True, fullgraph=True, backend="aot_eager")
    for step in range(12):
        conv.order_noise = 0.5 - 0.04 * step
        expected = run(conv, x, edges)
        torch.manual_seed(2)
        assert_close(with_gradients(conv, compiled(x, edges)), expected, 1e-10)


def test_nothing_is_drawn_where_nothing_can_learn() -> None:
    conv, x, edges = build().requires_grad_(False), torch.randn(10, 6, dtype=torch.double), small_graph()
    before = torch.get_rng_state()
    conv(x, edges)
    assert torch.equal(torch.get_rng_state(), before)


def test_copies_have_a_noise_of_their_own() -> None:
    conv = build()
    for other in (copy.copy(conv), copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):  # noqa: S301
        other.order_noise = 0.0
        assert (conv.order_noise, other.order_noise) == (0.5, 0.0)


def test_transforms_of_torch_func() -> None:
    conv, x, edges = build(backend="reference"), torch.randn(10, 6, dtype=torch.double), small_graph()
    parameters = dict(conv.named_parameters())

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(conv, parameters, (x, edges)).square().sum()

    torch.manual_seed(2)
    found = torch.func.grad(loss)(parameters)
    torch.manual_seed(2)
    expected = torch.autograd.grad(loss(parameters), list(parameters.values()))
    assert_close(found, dict(zip(parameters, expected, strict=True)), 1e-10)


def test_a_network_learns_with_an_annealed_noise() -> None:
    """GOAT passes the option on, and its layers' attribute may change during training."""
    model, edges = GOAT(6, 8, 2, out_channels=1, heads=2, order_noise=0.3), small_graph()
    x, y = torch.randn(10, 6), torch.randn(10, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(40):
        for conv in model.convs:
            conv.order_noise = 0.3 * (1 - step / 40)
        loss = (model(x, edges) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("noise", [1e-310, 1e-9, 1e9, 1e308])
@pytest.mark.parametrize("backend", AVAILABLE)
def test_extreme_noise_is_finite(noise: float, backend: str) -> None:
    device = device_of(backend)
    conv = GOATConv(6, 4, 2, order_noise=noise, backend=backend).to(device)
    out = conv(torch.randn(10, 6, device=device), small_graph().to(device))
    assert all(value.isfinite().all() for value in with_gradients(conv, out.cpu()).values())


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "0.1", None])
@pytest.mark.parametrize("later", [False, True])
def test_bad_noise(value: Any, later: bool) -> None:
    conv = GOATConv(2, 2, order_noise=0.1)
    give = partial(setattr, conv, "order_noise") if later else lambda noise: GOATConv(2, 2, order_noise=noise)
    with pytest.raises(ValueError, match=rf"order_noise must be a finite number of at least 0, got {value!r}\."):
        give(value)
    assert conv.order_noise == 0.1


def test_the_paper_has_no_such_option() -> None:
    with pytest.raises(ValueError, match="no order_noise"):
        GOATConv.paper(2, 2, order_noise=0.1)
