"""The layer with the tools of PyTorch and PyG: copies, compilers, lower precision, explainers, hooks."""

import copy
import pickle
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import HeteroData
from torch_geometric.explain import AttentionExplainer, Explainer, GNNExplainer
from torch_geometric.nn import HeteroConv

from tests.backends import AVAILABLE, device_of
from tests.compare import assert_close, relative_error, same_up_to_rounding, with_gradients
from tests.graphs import small_graph
from torch_goat.nn import GOATConv

N = 10


def test_hetero_conv() -> None:
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.randn(6, 5), torch.randn(3, 4)
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2, 2], [0, 0, 3, 5]])
    data["paper", "has", "author"].edge_index = data["author", "writes", "paper"].edge_index.flip(0)
    convs = {
        ("paper", "cites", "paper"): GOATConv(-1, 4),
        ("author", "writes", "paper"): GOATConv((-1, -1), 4, add_self_loops=False),
        ("paper", "has", "author"): GOATConv((-1, -1), 4, add_self_loops=False),
    }
    out = HeteroConv(convs, aggr="sum")(data.x_dict, data.edge_index_dict)
    first, second, _ = convs.values()
    expected = first(data["paper"].x, data["paper", "cites", "paper"].edge_index)
    expected = expected + second((data["author"].x, data["paper"].x), data["author", "writes", "paper"].edge_index)
    assert same_up_to_rounding(out["paper"], expected)


def test_lazy_width() -> None:
    lazy, conv = (GOATConv(width, 4, heads=2, residual=True, attention="gatv2") for width in (-1, 5))
    x = torch.randn(N, 5)
    lazy(x, small_graph())
    lazy.load_state_dict(conv.state_dict())
    assert torch.equal(lazy(x, small_graph()), conv(x, small_graph()))


@pytest.mark.parametrize("features", [0, 3])
@pytest.mark.parametrize("attention", ["gat", "gatv2"])
def test_lazy_number_of_edge_features(attention: str, features: int) -> None:
    lazy = GOATConv(5, 4, heads=2, attention=attention, edge_dim=-1)
    x, edge_attr = torch.randn(N, 5), torch.randn(small_graph().size(1), features)
    out = lazy(x, small_graph(), edge_attr)
    conv = GOATConv(5, 4, heads=2, attention=attention, edge_dim=features or None)
    conv.load_state_dict(lazy.state_dict(), strict=features > 0)
    assert torch.equal(out, conv(x, small_graph(), edge_attr if features else None))


@pytest.mark.parametrize("options", [{}, {"attention": "gatv2", "edge_dim": 3, "rnn": "gru"}])
def test_copies_are_equal(options, tmp_path) -> None:
    conv, x, edge_index = GOATConv(5, 4, heads=2, residual=True, **options), torch.randn(N, 5), small_graph()
    edge_attr = torch.randn(edge_index.size(1), 3) if options else None
    out = conv(x, edge_index, edge_attr)
    loaded = GOATConv(5, 4, heads=2, residual=True, **options)
    torch.save(conv.state_dict(), tmp_path / "weights.pt")
    loaded.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    for other in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv)), loaded):  # noqa: S301
        assert torch.equal(other(x, edge_index, edge_attr), out)


@pytest.mark.parametrize("backend", ["reference", *(name for name in AVAILABLE if name != "triton")])
def test_another_default_device(backend: str) -> None:
    """As after ``torch.set_default_device``: layers on a CPU run there."""
    conv = GOATConv(5, 4, heads=2, order_noise=0.2, backend=backend)
    x, edge_index = torch.randn(N, 5), small_graph()

    def step() -> tuple[torch.Tensor, ...]:
        torch.manual_seed(2)  # of the drawn order
        out = conv(x, edge_index.clone())  # whose layout is not known yet
        return out, *torch.autograd.grad(out.square().sum(), list(conv.parameters()))

    expected = step()
    with torch.device("meta"):
        found = step()
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_reset_draws_new_weights() -> None:
    conv = GOATConv(5, 4, heads=2, residual=True, attention="gatv2", edge_dim=2)
    before = {name: value.clone() for name, value in conv.state_dict().items()}
    conv.reset_parameters()
    fixed = ("bias", "rnn.bias_ih", "rnn.bias_hh")
    assert all(name in fixed or not torch.equal(value, before[name]) for name, value in conv.state_dict().items())


@pytest.mark.parametrize("backend", ["reference", *AVAILABLE])
@pytest.mark.parametrize("compiled", [False, True])
def test_activation_checkpoints_and_offloading(compiled: bool, backend: str) -> None:
    """Both replace what is saved for the backward pass: it may be read only once."""
    torch._dynamo.reset()
    device = device_of(backend)
    conv = GOATConv(5, 4, heads=2, dropout=0.3, order_noise=0.0 if compiled else 0.5, backend=backend).to(device)
    x, edge_index = torch.randn(N, 5, device=device, requires_grad=True), small_graph().to(device)
    layer = torch.compile(conv, backend="aot_eager") if compiled and backend != "reference" else conv

    def gradients(keep: Callable) -> dict[str, Tensor]:
        torch.manual_seed(0)
        return with_gradients(conv, keep(x, edge_index), x)

    def offloaded(*inputs: Tensor) -> Tensor:
        with torch.autograd.graph.save_on_cpu():
            return layer(*inputs)

    expected = gradients(layer)
    for keep in (partial(checkpoint, layer, use_reentrant=False), offloaded):
        assert_close(gradients(keep), expected, 0)


@pytest.mark.parametrize("rnn", ["lstm", "mingru"])
def test_autocast_keeps_scores_in_float32(rnn: str) -> None:
    conv, x, edge_index = GOATConv(5, 16, heads=2, rnn=rnn), torch.randn(N, 5), small_graph()
    out, ordering = conv(x, edge_index, return_ordering=True)
    with torch.autocast("cpu", torch.bfloat16):
        low, low_ordering = conv(x, edge_index, return_ordering=True)
    assert low_ordering == ordering
    assert torch.equal(low_ordering.score, ordering.score)
    assert relative_error(low, out) < 1e-2


class Bilinear(torch.nn.Bilinear):
    """A custom attention with weights of its own."""

    def forward(self, target: Tensor, source: Tensor, edge_attr: Tensor | None) -> Tensor:
        return super().forward(target, source).squeeze(-1)


@pytest.mark.parametrize(
    "options",
    [{}, {"edge_dim": 3}, {"edge_dim": -1, "attention": "gatv2"}, {"edge_dim": 3, "attention": Bilinear(8, 8, 1)}],
)
def test_a_layer_in_bfloat16(options) -> None:
    x, edge_index = torch.randn(N, 5).bfloat16(), small_graph()
    edge_attr = torch.randn(edge_index.size(1), 3).bfloat16() if options else None
    conv = GOATConv(5, 8, heads=2, **options).to(torch.bfloat16)
    out, ordering = conv(x, edge_index, edge_attr, return_ordering=True)
    assert out.dtype == torch.bfloat16
    assert ordering.score.dtype == torch.float32
    wide = copy.deepcopy(conv).double()(x.double(), edge_index, edge_attr if edge_attr is None else edge_attr.double())
    assert relative_error(out, wide) < 2e-2


@pytest.mark.parametrize("rnn", ["lstm", "mingru", "minlstm"])
def test_double_backward_is_computed_by_the_reference(rnn: str) -> None:
    conv = GOATConv(5, 4, heads=2, rnn=rnn, backend="reference").double()
    x = torch.randn(N, 5).double().requires_grad_()
    (grad,) = torch.autograd.grad(conv(x, small_graph()).square().sum(), x, create_graph=True)
    (curved,) = torch.autograd.grad((grad * grad.detach()).sum(), x)  # the Hessian times the gradient
    step = 1e-5 * grad.detach()
    ends = [(x + side * step).detach().requires_grad_() for side in (1, -1)]
    above, below = (torch.autograd.grad(conv(end, small_graph()).square().sum(), end)[0] for end in ends)
    assert relative_error(curved, (above - below) / 2e-5) < 1e-6


@pytest.mark.parametrize("backend", ["reference", *AVAILABLE])
@pytest.mark.parametrize("order_noise", [0.0, 0.2])
@pytest.mark.parametrize("rnn", ["lstm", "mingru"])
def test_an_activation_can_write_to_the_output(rnn: str, order_noise: float, backend: str) -> None:
    options = {"bias": False, "mean_residual": False, "order_noise": order_noise, "rnn": rnn, "backend": backend}
    conv, edge_index = GOATConv(5, 4, heads=2, **options).to(device_of(backend)), small_graph().to(device_of(backend))
    x = torch.randn(N, 5, device=device_of(backend))
    results = []
    for activation in (torch.tanh, torch.tanh_):
        torch.manual_seed(0)  # of the order that is drawn
        results.append(with_gradients(conv, activation(conv(x, edge_index))))
    assert_close(*results, 0)


@pytest.mark.parametrize("rnn", ["lstm", "mingru"])
def test_deterministic_algorithms(rnn: str) -> None:
    conv, x, edge_index = GOATConv(5, 4, heads=2, edge_dim=1, rnn=rnn), torch.randn(N, 5), small_graph()
    edge_attr = torch.randn(edge_index.size(1))
    torch.use_deterministic_algorithms(True)
    try:
        first, second = (with_gradients(conv, conv(x, edge_index, edge_attr)) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(first[name], second[name]) for name in first)


def explainer(algorithm, model: torch.nn.Module, **config) -> Explainer:
    return Explainer(
        model, algorithm, explanation_type="model", edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "node", "return_type": "raw"}, **config,
    )  # fmt: skip


def test_attention_explainer_reads_the_coefficients() -> None:
    conv, x, edge_index = GOATConv(5, 4, heads=2).eval(), torch.randn(N, 5), small_graph()
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    mask = explainer(AttentionExplainer(), conv)(x, edge_index, index=2).edge_mask
    _, (_, alpha) = conv(x, edge_index, return_attention_weights=True)
    into = edge_index[1] == 2
    assert torch.equal(mask[into], alpha[: edge_index.size(1)].max(dim=-1).values[into])


def test_gnn_explainer_masks_the_coefficients() -> None:
    conv, x, edge_index = GOATConv(5, 4, heads=2).eval(), torch.randn(N, 5), small_graph()
    plain = conv(x, edge_index)
    conv.explain = True
    conv._loop_mask = edge_index[0] != edge_index[1]
    conv._apply_sigmoid = False
    conv._edge_mask = torch.ones(edge_index.size(1))
    assert torch.equal(conv(x, edge_index), plain)
    conv._edge_mask = (edge_index[1] != 3).float()  # nothing but itself is left of node 3
    masked = conv(x, edge_index)
    changed = (masked != plain).any(dim=1)
    assert changed.tolist() == [node == 3 for node in range(N)]
    conv.explain = None
    explanation = explainer(GNNExplainer(epochs=3), conv, node_mask_type="attributes")(x, edge_index, index=2)
    assert explanation.edge_mask.shape == (edge_index.size(1),)
    assert torch.equal(conv(x, edge_index), plain)


@pytest.mark.parametrize("part", ["lin_src", "lin_dst", "attention.lin_edge", "res", "rnn"])
def test_hooks_of_its_modules_are_called(part: str) -> None:
    """Pruning computes the weights of a step in such a hook."""
    conv, seen = GOATConv((5, 5), 4, attention="gatv2", edge_dim=2, residual=True), []
    conv.get_submodule(part).register_forward_pre_hook(lambda *_: seen.append("called"))
    conv((torch.randn(N, 5), torch.randn(N, 5)), small_graph(), torch.randn(small_graph().size(1), 2))
    assert seen == ["called"]


@pytest.mark.parametrize("step", ["propagate", "message", "aggregate"])
def test_hooks_of_message_passing_are_called(step: str) -> None:
    conv, x, seen = GOATConv(5, 4, heads=2), torch.randn(N, 5), []
    plain = conv(x, small_graph())
    before = getattr(conv, f"register_{step}_forward_pre_hook")(lambda *_: seen.append("before"))
    after = getattr(conv, f"register_{step}_forward_hook")(lambda *_: seen.append("after"))
    assert torch.equal(conv(x, small_graph()), plain)
    assert seen == ["before", "after"]
    before.remove()
    after.remove()
    conv(x, small_graph())
    assert len(seen) == 2
