from collections.abc import Callable
from numbers import Integral
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import GroupNorm, Module, Parameter
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import Linear, is_uninitialized_parameter
from torch_geometric.nn.inits import zeros

from torch_goat.nn.attention import build_attention
from torch_goat.nn.dropout import dropout as drop
from torch_goat.nn.ordering import Ordering
from torch_goat.nn.packed_rnn import PackedRNN
from torch_goat.nn.ragged_rnn import RaggedRNN
from torch_goat.ops.adjacency import to_edges
from torch_goat.ops.checks import check_features
from torch_goat.ops.coefficients import coefficients
from torch_goat.ops.memory import derived
from torch_goat.ops.neighborhoods import Neighborhoods, neighborhoods
from torch_goat.ops.places import remember_order
from torch_goat.ops.segments import run_sizes
from torch_goat.ops.selection import keep_random, keep_top
from torch_goat.ops.sort import sort_tokens
from torch_goat.ops.weighted_mean import weighted_mean

# What the paper's equations do not have, and what stands for it there.
_BEYOND_THE_PAPER: dict[str, Any] = {
    "residual": False,
    "mean_residual": False,
    "scaling": "softmax",
    "state_norm": False,
    "state_dropout": 0.0,
    "rnn_init": "uniform",
    "bias": False,
}
# Where MessagePassing keeps what watches a layer's propagate.
_HOOKS = [f"_{step}_forward{kind}_hooks" for step in ("propagate", "message", "aggregate") for kind in ("_pre", "")]


class GOATConv(MessagePassing):
    r"""The Graph Ordering Attention layer from the `"Graph Ordering Attention Networks"
    <https://arxiv.org/abs/2204.05351>`_ paper.

    Scores over the closed neighbourhood (Eq. 1)

    .. math::
        a_{ij} = \mathrm{LeakyReLU}\left(\mathbf{w}_2^{\top}
        [\mathbf{W}_1 \mathbf{h}_i \, \Vert \, \mathbf{W}_1 \mathbf{h}_j]\right),
        \quad j \in \overline{\mathcal{N}}(i)

    are sorted in decreasing order, :math:`a_{i\pi(1)} \geq a_{i\pi(2)} \geq \ldots` (Eq. 2), and the states, each
    scaled by its softmax coefficient :math:`\alpha_{ij}`, are read by an RNN in that order (Eq. 3):

    .. math::
        \mathbf{h}^{\mathrm{new}}_i = \mathrm{LSTM}\left(\left[
        \alpha_{i\pi(1)} \mathbf{W}_1 \mathbf{h}_{\pi(1)}, \ldots,
        \alpha_{i\pi(P)} \mathbf{W}_1 \mathbf{h}_{\pi(P)}\right]\right)

    Heads have :math:`\mathbf{W}_1`, :math:`\mathbf{w}_2` and RNN weights of their own. Equal scores are ordered by the
    first element in which the input states differ, ascending (Algorithm 1). Scores, softmax and sorting never run
    below float32. Multi-edges are read once each; a target without any neighbour gets zeros (plus bias).

    Args:
        in_channels: The width of the input, or ``-1`` to take it from the first call. A pair is the widths of source
            and target nodes, which are then different node sets; it needs ``add_self_loops=False``.
        out_channels: The width of one head's output. A bidirectional RNN gives each direction half of it.
        heads: The number of heads.
        head_pooling: How heads are joined: ``"cat"`` gives ``heads * out_channels`` columns, ``"sum"`` and ``"mean"``
            give ``out_channels``.
        attention: ``"gat"`` (the paper), ``"gatv2"``,
            :math:`\mathbf{w}_2^{\top} \mathrm{LeakyReLU}(\mathbf{W}_1 \mathbf{h}_j + \mathbf{W}_t \mathbf{h}_i)`, or a
            module that maps target states ``[E, heads, out_channels]``, source states of the same shape and edge
            features ``[E, edge_dim]`` (or ``None``) to scores ``[E, heads]``.
        rnn: ``"lstm"``, ``"gru"``, ``"rnn"``, or a factory ``(in_channels, out_channels) -> module`` of sequence
            models that read a ``PackedSequence`` (slower; see :class:`~torch_goat.nn.packed_rnn.PackedRNN`).
        bidirectional: Whether a built-in RNN reads from both ends. A factory decides for itself.
        max_neighbors: The most neighbours that are read besides the node itself; all of them if ``None``. The softmax
            runs over what is kept.
        neighbor_selection: ``"random"`` draws them uniformly without replacement, anew in every training step and once
            and for all in evaluation; ``"top"`` takes the highest scores, per head.
        negative_slope: The slope of LeakyReLU for negative values.
        dropout: The probability of dropping a coefficient in training; it never changes the order.
        add_self_loops: Whether a node is in its own neighbourhood. Self loops that are there already are replaced.
        edge_dim: The number of edge features, or ``-1`` to take it from the first call; they enter the score only. A
            self loop gets the mean of its node's.
        residual: Whether a linear map of the target's input is added to the output.
        mean_residual: Whether the mean of the neighbours' states :math:`\mathbf{W}_1 \mathbf{h}_j`, weighted by their
            coefficients, is added to the output: what GAT gives, which this layer then contains.
        scaling: What a state is scaled by before it is read: ``"softmax"``, its coefficient, or ``"size"``, its
            coefficient times the number of neighbours, which is 1 on average whatever that number is.
        state_norm: Whether the states are normalised per node and head before they are scaled.
        state_dropout: The probability of dropping an element of the states that the RNN reads.
        rnn_init: How the weights of a built-in RNN are drawn: ``"orthogonal"`` (the default), with orthogonal recurrent
            matrices and a forget gate that begins open, or ``"uniform"`` as PyTorch does.
        bias: Whether a bias is added to the output. The RNN always has its own.
        backend: The backend of a built-in RNN, a name of :func:`torch_goat.backends`, or ``"auto"``.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})` or
          :math:`((|\mathcal{V}_s|, F_s), (|\mathcal{V}_t|, F_t))` if bipartite, edge indices
          :math:`(2, |\mathcal{E}|)` or a sparse matrix :math:`(|\mathcal{V}_t|, |\mathcal{V}_s|)`, edge features
          :math:`(|\mathcal{E}|, D)` *(optional)*
        - **output:** :math:`(|\mathcal{V}_t|, H F_{out})`, or :math:`(|\mathcal{V}_t|, F_{out})` if heads are summed
          or averaged
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        *,
        head_pooling: Literal["cat", "sum", "mean"] = "cat",
        attention: str | Module = "gat",
        rnn: str | Callable[[int, int], Module] = "lstm",
        bidirectional: bool = True,
        max_neighbors: int | None = None,
        neighbor_selection: Literal["random", "top"] = "random",
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        residual: bool = False,
        mean_residual: bool = True,
        scaling: Literal["softmax", "size"] = "softmax",
        state_norm: bool = False,
        state_dropout: float = 0.0,
        rnn_init: Literal["uniform", "orthogonal"] | None = None,
        bias: bool = True,
        backend: str = "auto",
    ) -> None:
        super().__init__(aggr=None, node_dim=0)
        if heads < 1 or out_channels < 1:
            raise ValueError(f"out_channels and heads must be at least 1, got {out_channels} and {heads}.")
        if head_pooling not in ("cat", "sum", "mean"):
            raise ValueError(f"head_pooling must be 'cat', 'sum' or 'mean', got {head_pooling!r}.")
        if neighbor_selection not in ("random", "top"):
            raise ValueError(f"neighbor_selection must be 'random' or 'top', got {neighbor_selection!r}.")
        if max_neighbors is not None and max_neighbors < 1:
            raise ValueError(f"max_neighbors must be at least 1 or None, got {max_neighbors}.")
        if scaling not in ("softmax", "size"):
            raise ValueError(f"scaling must be 'softmax' or 'size', got {scaling!r}.")
        for name, probability in (("dropout", dropout), ("state_dropout", state_dropout)):
            if not 0 <= probability <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, got {probability}.")
        if callable(rnn) and rnn_init is not None:
            raise ValueError(f"rnn_init={rnn_init!r} is for built-in RNNs; a factory draws its own weights.")
        source_channels, target_channels = _both(in_channels)
        pair = isinstance(in_channels, tuple | list)
        if pair and add_self_loops:
            raise ValueError(
                f"in_channels={in_channels!r} means that sources and targets are different nodes, which have no "
                f"self loops; pass add_self_loops=False."
            )
        self.in_channels = (source_channels, target_channels) if pair else source_channels
        self.out_channels, self.heads = out_channels, heads
        self.head_pooling, self.dropout, self.add_self_loops = head_pooling, dropout, add_self_loops
        self.max_neighbors, self.neighbor_selection = max_neighbors, neighbor_selection
        self.edge_dim, self.residual, self.mean_residual = edge_dim, residual, mean_residual
        self.scaling, self.state_dropout = scaling, state_dropout

        self.lin_src = _linear(source_channels, heads * out_channels)
        self.lin_dst = _linear(target_channels, heads * out_channels) if pair or attention == "gatv2" else None
        self.attention = build_attention(attention, heads, out_channels, edge_dim, negative_slope)
        if callable(rnn):
            self.rnn: RaggedRNN | PackedRNN = PackedRNN(rnn, out_channels, out_channels, heads)
        else:
            self.rnn = RaggedRNN(
                rnn, out_channels, out_channels, heads, bidirectional, backend, rnn_init or "orthogonal"
            )
        self.norm = GroupNorm(heads, heads * out_channels) if state_norm else None
        width = heads * out_channels if head_pooling == "cat" else out_channels
        self.res = _linear(target_channels, width) if residual else None
        self.bias = Parameter(torch.empty(width)) if bias else None
        self.reset_parameters()

    @classmethod
    def paper(cls, in_channels: int | tuple[int, int], out_channels: int, heads: int = 1, **options: Any) -> "GOATConv":
        """The layer of the paper's equations and nothing else, whatever the defaults of the constructor become.

        Args:
            in_channels: As in the constructor.
            out_channels: As in the constructor.
            heads: As in the constructor.
            **options: The choices that the paper leaves open: everything but what adds to its equations.
        """
        if extra := sorted(_BEYOND_THE_PAPER.keys() & options.keys()):
            raise ValueError(
                f"GOATConv.paper is the layer of the paper's equations, which have no {extra[0]}; use "
                f"GOATConv(...) for it."
            )
        without = dict(_BEYOND_THE_PAPER)
        if callable(options.get("rnn")):
            del without["rnn_init"]  # which a factory does not have
        return cls(in_channels, out_channels, heads, **without, **options)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for module in self.children():
            module.reset_parameters()
        zeros(self.bias)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        *,
        ordering: Ordering | None = None,
        size: tuple[int, int] | None = None,
        n_id: Tensor | None = None,
        return_attention_weights: bool = False,
        return_ordering: bool = False,
    ) -> Any:
        r"""Runs the layer.

        Args:
            x: The input states. A pair ``(x_src, x_dst)`` is bipartite: with one ``in_channels`` the targets are the
                first rows of the sources, as in PyG's sampled mini-batches. ``(x, None)`` takes them from there;
                with a pair of ``in_channels`` the targets then have no states and the scores leave them out.
            edge_index: COO ``[2, E]`` in any order, an ``EdgeIndex``, or a torch sparse matrix as PyG's ``adj_t``
                (rows are targets; its values are the edge features if ``edge_dim=1`` and are ignored otherwise).
            edge_attr: The edge features.
            ordering: An order to replay instead of sorting, as ``return_ordering=True`` gave it; the coefficients are
                still computed from the present weights.
            size: The numbers of sources and targets, where ``x`` does not say.
            n_id: The numbers of the sources in the graph that this is a part of; a random selection of neighbours in
                evaluation goes by these and is then that of the whole graph. Not for a pair of ``in_channels``.
            return_attention_weights: Also return ``(edge_index, alpha)``: the input edges with self loops appended and
                their coefficients before dropout ``[E, heads]``, zero where a neighbour was not selected.
            return_ordering: Also return the :class:`~torch_goat.nn.Ordering`.

        Returns:
            ``out``, or ``(out, (edge_index, alpha))``, ``(out, ordering)``, ``(out, (edge_index, alpha), ordering)``.
        """
        if ordering is not None and not isinstance(ordering, Ordering):
            raise TypeError(f"ordering must be an Ordering, got {type(ordering).__name__}.")
        x_src, x_dst, num_targets = self._states(x, size)
        two_sets = not isinstance(self.in_channels, int)
        if n_id is not None and (two_sets or n_id.shape != x_src.shape[:1]):
            raise ValueError(
                f"n_id must number the {x_src.size(0)} nodes of one set, got shape {list(n_id.shape)} for "
                f"in_channels={self.in_channels!r}."
            )
        edge_index, edge_attr = to_edges(edge_index, edge_attr, self.edge_dim, x_src.size(0), num_targets)
        hood = neighborhoods(edge_index, edge_attr, x_src.size(0), num_targets, self.add_self_loops)
        hood = hood._replace(two_sets=two_sets)
        if self.max_neighbors is not None and self.neighbor_selection == "random":
            if ordering is not None:
                raise ValueError(
                    "an ordering cannot be replayed together with a random selection of neighbours; use "
                    "max_neighbors=None or neighbor_selection='top'."
                )
            hood = hood.keep(keep_random(hood, self.max_neighbors, self.training, n_id))

        with torch.autocast(x_src.device.type, enabled=False):
            z_src, score = self._scores(x_src, x_dst, hood)  # [S, K, C], [K, E]
            token, source, runs = self._order(score, x_src, hood, ordering)  # [K, E], [K, E]
            score = score.gather(1, token)  # in order from here on
            alpha = coefficients(score, runs.target, runs.ptr)
            weight = self._message(alpha, token, hood)
            mean = None
            if self.mean_residual:
                mean = weighted_mean(self.rnn.kernel(z_src), z_src, source, weight, runs.ptr)  # [T, K, C]
            if self.scaling == "size":
                weight = weight * derived(runs.ptr, "sizes", run_sizes, weight.size(1)).to(weight.dtype)
        out = self.rnn(self._read(z_src).to(x_src.dtype), source, weight, runs.ptr)  # [T, K, C]
        if mean is not None:
            out = out + mean.to(out.dtype)

        if self.head_pooling == "cat":
            out = out.flatten(1)
        else:
            out = out.sum(dim=1) if self.head_pooling == "sum" else out.mean(dim=1)
        if self.res is not None:
            out = out + self.res(x_dst)
        if self.bias is not None:
            out = out + self.bias

        results: list[Any] = [out]
        if return_attention_weights:
            results.append((hood.edge_index, hood.by_edge(alpha, token)))
        if return_ordering:
            results.append(Ordering(runs.ptr, token, source, score, alpha))
        return tuple(results) if len(results) > 1 else out

    def _states(
        self, x: Tensor | tuple[Tensor, Tensor | None], size: tuple[int, int] | None
    ) -> tuple[Tensor, Tensor | None, int]:
        """The states of sources and targets and the number of targets, checked."""
        pair = not isinstance(self.in_channels, int)
        x_src, x_dst = x if isinstance(x, tuple) else (x, x if size is None or pair else None)
        source_channels, target_channels = _both(self.in_channels)
        check_features("x" if x_src is x_dst else "x[0] (sources)", x_src, source_channels)
        if x_dst is not None and (x_dst is not x_src or source_channels != target_channels):
            check_features("x[1] (targets)", x_dst, target_channels)
        weight = self.lin_src.weight
        autocast = torch.is_autocast_enabled(x_src.device.type)
        if x_src.dtype != weight.dtype and not autocast:
            raise TypeError(f"x is {x_src.dtype}, but the layer's weights are {weight.dtype}; convert one of them.")

        num_sources, num_targets = size or (None, None)
        if num_targets is None:
            num_targets = (x_src if x_dst is None else x_dst).size(0)
        if num_sources is not None and num_sources != x_src.size(0):
            raise ValueError(f"size says {num_sources} sources, but x has {x_src.size(0)} rows for them.")
        if x_dst is not None and num_targets != x_dst.size(0):
            raise ValueError(f"size says {num_targets} targets, but x has {x_dst.size(0)} rows for them.")
        if not pair:
            if num_targets > x_src.size(0):
                raise ValueError(
                    f"{num_targets} targets cannot be the first rows of {x_src.size(0)} sources; for "
                    f"different node sets build the layer with a pair of in_channels."
                )
            x_dst = x_src[:num_targets] if x_dst is None else x_dst
        elif x_dst is None and self.residual:
            raise ValueError("residual=True needs the targets' states, but x is (x, None).")
        return x_src, x_dst, num_targets

    def _scores(self, x_src: Tensor, x_dst: Tensor | None, hood: Neighborhoods) -> tuple[Tensor, Tensor]:
        """Eq. 1: the projected source states ``[S, K, C]`` and the score of every token ``[K, E]``."""
        z_src = self._project(self.lin_src, x_src)
        if x_dst is None:
            z_dst = None
        elif self.lin_dst is not None:
            z_dst = self._project(self.lin_dst, x_dst)
        else:
            z_dst = z_src if x_dst is x_src else self._project(self.lin_src, x_dst)
        edge_attr = None if hood.edge_attr is None else hood.edge_attr[hood.edge].to(z_src.dtype)
        score = self.attention(z_src, z_dst, hood.source, hood.target, edge_attr)
        return z_src, score.to(torch.promote_types(score.dtype, torch.float32))

    def _project(self, linear: Linear, x: Tensor) -> Tensor:
        """``W_1 h`` for every head ``[N, K, C]``, in float32 at least, since scores are made of it."""
        if is_uninitialized_parameter(linear.weight):
            linear.initialize_parameters(linear, (x,))
        wide = torch.promote_types(x.dtype, torch.float32)
        return F.linear(x.to(wide), linear.weight.to(wide)).view(-1, self.heads, self.out_channels)

    def _order(
        self, score: Tensor, x_src: Tensor, hood: Neighborhoods, ordering: Ordering | None
    ) -> tuple[Tensor, Tensor, Neighborhoods]:
        """Eq. 2: the tokens in order and their sources ``[K, E]``, and neighbourhoods with the runs that they fill."""
        top = self.max_neighbors if self.neighbor_selection == "top" else None
        runs = hood
        if top is not None:
            # How many are kept does not depend on the order.
            anyhow = torch.arange(hood.source.numel(), device=hood.source.device).view(1, -1)
            runs = hood.keep(keep_top(hood, anyhow, top)[0])
        if ordering is not None:
            ordering.check_fits(hood, runs.ptr, self.heads)
            # Tensors of this call's own; those of inference mode could not be saved for the backward.
            given = (ordering.token, ordering.source)
            token, source = (value.clone() if value.is_inference() else value.detach() for value in given)
        else:
            token, source = sort_tokens(score.detach(), x_src.detach(), hood.source, hood.target, hood.num_targets)
            if top is not None:
                kept = keep_top(hood, token, top)
                token, source = (value[kept].view(self.heads, -1) for value in (token, source))
        if torch.is_grad_enabled() and not torch.compiler.is_compiling() and not source.is_inference():
            # Both gradients of the states are added up by source. Copies of an edge can differ by their features.
            whole = top is None and hood.edge_attr is None
            remember_order(source, token if whole else None, hood.source)
        return token, source, runs

    def _read(self, z: Tensor) -> Tensor:
        """The states as the RNN reads them ``[S, K, C]``."""
        if self.norm is not None:
            # Before the coefficients come in: after, it would cancel them and their gradient.
            z = self.norm(z.flatten(1).to(self.norm.weight.dtype)).view_as(z)
        return drop(z, self.state_dropout, self.training)

    def _message(self, alpha: Tensor, token: Tensor, hood: Neighborhoods) -> Tensor:
        """The coefficients with which neighbours are read: after dropout, and after an explainer's mask.

        PyG's explainers watch and mask messages edge by edge in :meth:`propagate`, and so do the hooks of a user's. The
        message of this layer is its coefficient; without anyone watching, the way there and back is spared.
        """
        if not (self.explain or any(getattr(self, name) for name in _HOOKS)):
            return self.message(alpha)
        # propagate_type: (alpha: Tensor)
        size = (hood.num_sources, hood.num_targets)
        per_edge = self.propagate(hood.edge_index, alpha=hood.by_edge(alpha, token), size=size)
        return per_edge.gather(0, hood.edge[token].t()).t()

    def message(self, alpha: Tensor) -> Tensor:
        return drop(alpha, self.dropout, self.training)

    def aggregate(self, inputs: Tensor) -> Tensor:
        return inputs

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"


def _both(channels: int | tuple[int, int]) -> tuple[int, int]:
    pair = channels if isinstance(channels, tuple | list) else (channels, channels)
    if len(pair) != 2 or not all(isinstance(width, Integral) for width in pair):  # numpy's numbers are among them
        raise ValueError(f"in_channels must be a whole number or a pair of them, got {channels!r}.")
    return int(pair[0]), int(pair[1])


def _linear(in_channels: int, out_channels: int) -> Linear:
    return Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
