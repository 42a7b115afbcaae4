import pytest
import torch
from torch.nn import Linear, ReLU, Sequential

from torch_goat.nn import GOATConv, HeadwiseMLP


def test_every_head_has_an_mlp_of_its_own() -> None:
    mlp, x = HeadwiseMLP(3, 4, 5, 2), torch.randn(7, 12)
    torch.nn.init.normal_(mlp.bias1)
    torch.nn.init.normal_(mlp.bias2)
    out = mlp(x)
    assert out.shape == (7, 3, 2)
    for head in range(3):
        alone = Sequential(Linear(4, 5), ReLU(), Linear(5, 2))
        values = (mlp.weight1[head].t(), mlp.bias1[head], mlp.weight2[head].t(), mlp.bias2[head])
        alone.load_state_dict(dict(zip(alone.state_dict(), values, strict=True)))
        torch.testing.assert_close(out[:, head], alone(x[:, 4 * head : 4 * head + 4]))
    assert repr(mlp) == "HeadwiseMLP(heads=3, 4, 5, 2)"


@pytest.mark.parametrize("shape", [(7, 4), (7, 3, 4), (12,)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"x must have shape .* = \[nodes, 12\], got "):
        HeadwiseMLP(3, 4, 5, 2)(torch.randn(shape))


def test_the_loss_of_a_head_trains_its_own_order_only() -> None:
    x, edge_index = torch.randn(6, 8), torch.randint(6, (2, 30))
    conv, mlp = GOATConv(8, 4, heads=2, order_noise=0.3), HeadwiseMLP(2, 4, 5, 3)
    mlp(conv(x, edge_index))[:, 1].square().sum().backward()
    first, second = conv.attention.att_src.grad.view(2, 4)
    assert not first.any()
    assert second.any()


@pytest.mark.parametrize("sizes", [(0, 4, 5, 2), (3, -1, 5, 2), (3, 4, 2.5, 2), (3, 4, 5, 0)])
def test_wrong_sizes(sizes: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        HeadwiseMLP(*sizes)
