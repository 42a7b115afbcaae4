"""Eq. 1 of the paper: the score of every token, for every head.

An attention maps the projected states of sources ``[S, K, C]`` and targets ``[T, K, C]`` (``None`` if targets have no
features), the neighbourhoods and the edge features by token ``[E, D]`` to scores ``[K, E]``.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module, Parameter
from torch_geometric.nn.dense.linear import Linear, is_uninitialized_parameter
from torch_geometric.nn.inits import glorot

from torch_goat.ops.checks import transforming
from torch_goat.ops.neighborhoods import Neighborhoods
from torch_goat.ops.tall_product import tall_product


def _rows(z: Tensor, gather: Callable[[Tensor], Tensor]) -> Tensor:
    """The states ``[N, K, C]`` of one end of each edge ``[E, K, C]``."""
    return gather(z.flatten(1).t()).t().view(-1, *z.shape[1:])


def infer_width(linear: Linear, x: Tensor) -> None:
    """Gives a lazy linear layer the width of its first input."""
    if is_uninitialized_parameter(linear.weight):
        linear.initialize_parameters(linear, (x,))


def project(linear: Linear, x: Tensor) -> Tensor:
    """``linear(x)`` in the dtype of ``x``, which may be higher than that of the weights."""
    infer_width(linear, x)
    return linear(x) if linear.weight.dtype == x.dtype else F.linear(x, linear.weight.to(x.dtype))


def _lin_edge(edge_dim: int | None, channels: int) -> Linear | None:
    return None if edge_dim is None else Linear(edge_dim, channels, bias=False, weight_initializer="glorot")


class GATAttention(Module):
    r"""The paper's scores, :math:`a_{ij} = \mathrm{LeakyReLU}(w_2^\top [W_1 h_i \,\|\, W_1 h_j])`.

    The product splits into a share of :math:`i` and a share of :math:`j`, each computed once per node. Edge features
    add :math:`w_e^\top W_e e_{ij}`, as in PyG's ``GATConv``.
    """

    def __init__(self, heads: int, channels: int, edge_dim: int | None, negative_slope: float) -> None:
        super().__init__()
        self.heads, self.channels, self.negative_slope = heads, channels, negative_slope
        self.att_src = Parameter(Tensor(heads, channels))
        self.att_dst = Parameter(Tensor(heads, channels))
        self.lin_edge = _lin_edge(edge_dim, heads * channels)
        self.att_edge = None if edge_dim is None else Parameter(Tensor(heads, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for vector in (self.att_src, self.att_dst, self.att_edge):
            glorot(vector)
        if self.lin_edge is not None:
            self.lin_edge.reset_parameters()

    def forward(self, z_src: Tensor, z_dst: Tensor | None, hood: Neighborhoods, edge_attr: Tensor | None) -> Tensor:
        of_source, of_target = self.shares(z_src, z_dst)  # [K, S], [K, T]
        score = hood.from_sources(of_source)  # [K, E]
        if of_target is not None:
            score = score + hood.from_targets(of_target)
        if edge_attr is not None and self.lin_edge is not None and self.att_edge is not None:
            # w_e (W_e e) = (w_e W_e) e: no [E, K, C] in between.
            infer_width(self.lin_edge, edge_attr)
            weight = self.lin_edge.weight.view(self.heads, self.channels, edge_attr.size(1))  # [K, C, D]
            weight = weight.to(edge_attr.dtype) * self.att_edge.unsqueeze(-1)
            score = score + weight.sum(dim=1) @ edge_attr.t()
        return F.leaky_relu(score, self.negative_slope)

    def shares(self, z_src: Tensor, z_dst: Tensor | None, kernel: str = "") -> tuple[Tensor, Tensor | None]:
        """Each node's share of its scores as a source and as a target; see :func:`tall_product` for the kernel."""
        if z_dst is z_src:
            both = torch.stack([self.att_src, self.att_dst], dim=-1).to(z_src.dtype)  # [K, C, 2]
            of_source, of_target = tall_product(kernel, z_src, both).unbind(dim=-1)
            return of_source, of_target

        def share(z: Tensor, vectors: Tensor) -> Tensor:  # [N, K, C] times [K, C] is [K, N]
            return tall_product(kernel, z, vectors.unsqueeze(-1).to(z.dtype)).squeeze(-1)

        return share(z_src, self.att_src), None if z_dst is None else share(z_dst, self.att_dst)


class GATv2Attention(Module):
    r"""Scores of GATv2, :math:`a_{ij} = w_2^\top \mathrm{LeakyReLU}(W_1 h_j + W_t h_i + W_e e_{ij})`."""

    def __init__(self, heads: int, channels: int, edge_dim: int | None, negative_slope: float) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.att = Parameter(Tensor(heads, channels))
        self.lin_edge = _lin_edge(edge_dim, heads * channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot(self.att)
        if self.lin_edge is not None:
            self.lin_edge.reset_parameters()

    def forward(self, z_src: Tensor, z_dst: Tensor | None, hood: Neighborhoods, edge_attr: Tensor | None) -> Tensor:
        joint = _rows(z_src, hood.from_sources)  # [E, K, C]
        if z_dst is not None:
            joint = joint + _rows(z_dst, hood.from_targets)
        if edge_attr is not None and self.lin_edge is not None:
            joint = joint + project(self.lin_edge, edge_attr).view_as(joint)
        return (F.leaky_relu(joint, self.negative_slope) * self.att).sum(dim=-1).t()


class EdgeAttention(Module):
    """A custom attention: a module that maps target states ``[E, K, C]``, source states ``[E, K, C]`` and edge features
    ``[E, D]`` (or ``None``), in the dtype of its parameters, to scores ``[E, K]``."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.module = module

    def reset_parameters(self) -> None:
        for child in self.module.modules():
            if callable(reset := getattr(child, "reset_parameters", None)):
                reset()

    def forward(self, z_src: Tensor, z_dst: Tensor | None, hood: Neighborhoods, edge_attr: Tensor | None) -> Tensor:
        state_src = _rows(z_src, hood.from_sources)  # [E, K, C]
        state_dst = torch.zeros_like(state_src) if z_dst is None else _rows(z_dst, hood.from_targets)
        dtype = next(self.module.parameters(), z_src).dtype
        features = None if edge_attr is None else edge_attr.to(dtype)
        score = self.module(state_dst.to(dtype), state_src.to(dtype), features)
        if score.shape != state_src.shape[:2]:
            raise ValueError(
                f"the attention module returned scores of shape {list(score.shape)}, expected [edges, "
                f"heads] = {list(state_src.shape[:2])}."
            )
        return score.t()


def fuses(
    attention: Module, z_src: Tensor, z_dst: Tensor | None, x: Tensor, hood: Neighborhoods, edge_attr: Tensor | None
) -> bool:
    """Whether :func:`fused_order` can take the place of scores, sort and softmax on a GPU."""
    return (
        isinstance(attention, GATAttention)
        and attention.negative_slope > 0
        and z_dst is not None
        and edge_attr is None
        and x.layout == torch.strided
        and z_src.dtype == torch.float32
        and hood.num_places > 0
        and z_src.size(1) * hood.num_targets < 2**31
        and not torch.compiler.is_compiling()
        and not transforming()
    )


def fused_order(
    attention: Module, z_src: Tensor, z_dst: Tensor | None, x: Tensor, hood: Neighborhoods
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tokens in order, their sources, scores and coefficients ``[K, E]``; ``x`` are the layer's input states."""
    from torch_goat.ops.fused_order import order_and_weigh  # Triton is optional

    assert isinstance(attention, GATAttention)
    of_source, of_target = attention.shares(z_src, z_dst, "triton")
    assert of_target is not None
    return order_and_weigh(of_source, of_target, attention.negative_slope, x, hood)


ATTENTIONS = {"gat": GATAttention, "gatv2": GATv2Attention}


def build_attention(
    attention: str | Module, heads: int, channels: int, edge_dim: int | None, negative_slope: float
) -> Module:
    """The attention of a name, or a custom module as one."""
    if isinstance(attention, Module):
        return EdgeAttention(attention)
    if attention not in ATTENTIONS:
        raise ValueError(f"attention must be one of {sorted(ATTENTIONS)} or a module, got {attention!r}.")
    return ATTENTIONS[attention](heads, channels, edge_dim, negative_slope)
