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


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_scores_are_those_of_the_equations_edge_by_edge(kind: str) -> None:
    z_src, z_dst, edge_attr = states()
    attention = build_attention(kind, K, C, D, 0.2).double()
    scores = attention(z_src, z_dst, HOOD, edge_attr)
    for edge, (j, i) in enumerate(zip(SOURCE.tolist(), TARGET.tolist(), strict=True)):
        for k in range(K):
            edge_state = attention.lin_edge.weight.view(K, C, D)[k] @ edge_attr[edge]
            if kind == "gat":  # Eq. 1
                w2 = torch.cat([attention.att_dst[k], attention.att_src[k]])
                joint = w2 @ torch.cat([z_dst[i, k], z_src[j, k]])  # of [W1 h_i || W1 h_j]
                expected = F.leaky_relu(joint + attention.att_edge[k] @ edge_state, 0.2)
            else:
                expected = attention.att[k] @ F.leaky_relu(z_src[j, k] + z_dst[i, k] + edge_state, 0.2)
            assert relative_error(scores[k, edge], expected) < 1e-12


class Dot(torch.nn.Module):
    def __init__(self, wrong: bool = False) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, target: Tensor, source: Tensor, edge_attr: Tensor | None) -> Tensor:
        score = (target * source).sum(dim=-1)
        return score[:, 0] if self.wrong else score


def test_a_custom_module_sees_the_states_of_both_ends() -> None:
    z_src, z_dst, _ = states()
    scores = build_attention(Dot(), K, C, None, 0.2)(z_src, z_dst, HOOD, None)
    assert relative_error(scores, torch.einsum("ekc,ekc->ke", z_dst[TARGET], z_src[SOURCE])) < 1e-12
    with pytest.raises(ValueError, match=r"\[4\], expected \[edges, heads\] = \[4, 2\]"):
        build_attention(Dot(wrong=True), K, C, None, 0.2)(z_src, z_dst, HOOD, None)
