import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.compare import relative_error
from torch_goat.nn.attention import build_attention
from torch_goat.ops import Neighborhoods

K, C, D = 2, 3, 4
SOURCE, TARGET = torch.tensor([0, 2, 1, 3]), torch.tensor([0, 0, 1, 2])
HOOD = Neighborhoods.from_edge_index(torch.stack([SOURCE, TARGET]), (4, 3), add_self_loops=False)


def states() -> tuple[Tensor, Tensor, Tensor]:
    z_src, z_dst, edge_attr = torch.randn(4, K, C), torch.randn(3, K, C), torch.randn(4, D)
    return z_src.double(), z_dst.double(), edge_attr.double()


def test_gat_scores_are_equation_1_edge_by_edge() -> None:
    z_src, z_dst, edge_attr = states()
    attention = build_attention("gat", K, C, D, 0.2).double()
    scores = attention(z_src, z_dst, HOOD, edge_attr)
    for edge, (j, i) in enumerate(zip(SOURCE.tolist(), TARGET.tolist(), strict=True)):
        for k in range(K):
            joint = torch.cat([z_dst[i, k], z_src[j, k]])  # [W1 h_i || W1 h_j]
            w2 = torch.cat([attention.att_dst[k], attention.att_src[k]])
            edge_part = attention.att_edge[k] @ attention.lin_edge.weight.view(K, C, D)[k] @ edge_attr[edge]
            expected = F.leaky_relu(w2 @ joint + edge_part, 0.2)
            assert relative_error(scores[k, edge], expected) < 1e-12


def test_gatv2_scores_edge_by_edge() -> None:
    z_src, z_dst, edge_attr = states()
    attention = build_attention("gatv2", K, C, D, 0.1).double()
    scores = attention(z_src, z_dst, HOOD, edge_attr)
    for edge, (j, i) in enumerate(zip(SOURCE.tolist(), TARGET.tolist(), strict=True)):
        for k in range(K):
            joint = z_src[j, k] + z_dst[i, k] + attention.lin_edge.weight.view(K, C, D)[k] @ edge_attr[edge]
            assert relative_error(scores[k, edge], attention.att[k] @ F.leaky_relu(joint, 0.1)) < 1e-12


class Dot(torch.nn.Module):
    def forward(self, target: Tensor, source: Tensor, edge_attr: Tensor | None) -> Tensor:
        return (target * source).sum(dim=-1)


def test_a_module_of_the_users_sees_the_states_of_both_ends() -> None:
    z_src, z_dst, _ = states()
    scores = build_attention(Dot(), K, C, None, 0.2)(z_src, z_dst, HOOD, None)
    assert relative_error(scores, torch.einsum("ekc,ekc->ke", z_dst[TARGET], z_src[SOURCE])) < 1e-12


def test_a_module_with_scores_of_a_wrong_shape_is_refused() -> None:
    class Wrong(Dot):
        def forward(self, *args: Tensor) -> Tensor:
            return super().forward(*args)[:, 0]

    z_src, z_dst, _ = states()
    with pytest.raises(ValueError, match=r"\[4\], expected \[edges, heads\] = \[4, 2\]"):
        build_attention(Wrong(), K, C, None, 0.2)(z_src, z_dst, HOOD, None)


def test_unknown_attention_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\['gat', 'gatv2'\] or a module, got 'dot'"):
        build_attention("dot", K, C, None, 0.2)
