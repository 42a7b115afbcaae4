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
from torch_goat.ops.adjacency import check_edge_attr, to_edges
from torch_goat.ops.checks import check_features
from torch_goat.ops.neighborhoods import Neighborhoods, neighborhoods
from torch_goat.ops.places import Places
from torch_goat.ops.segments import segment_softmax
from torch_goat.ops.selection import keep_random, keep_top
from torch_goat.ops.sort import sort_tokens
from torch_goat.ops.weighted_mean import weighted_mean

# The options that extend the paper's equations, with their values in the paper.
_BEYOND_THE_PAPER: dict[str, Any] = {
    "residual": False,
    "mean_residual": False,
    "scaling": "softmax",
    "state_norm": False,
    "state_dropout": 0.0,
    "rnn_init": "uniform",
    "bias": False,
}
# The hooks of MessagePassing that observe propagate.
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

    Each head has its own :math:`\mathbf{W}_1`, :math:`\mathbf{w}_2` and RNN. Equal scores are ordered by the first
    element in which the input states differ, ascending (Algorithm 1). Scores, softmax and sorting use at least float32.
    Multi-edges are read once each; a target without neighbours gets zeros (plus bias).

    Args:
        in_channels: The size of each input, or ``-1`` to infer it from the first call. A pair gives the sizes of source
            and target nodes, which are then different node sets; it requires ``add_self_loops=False``.
        out_channels: The size of one head's output. A bidirectional RNN uses half of it for each direction.
        heads: The number of heads.
        head_pooling: How heads are combined: ``"cat"`` gives ``heads * out_channels`` columns, ``"sum"`` and ``"mean"``
            give ``out_channels``.
        attention: ``"gat"`` (the paper), ``"gatv2"``,
            :math:`\mathbf{w}_2^{\top} \mathrm{LeakyReLU}(\mathbf{W}_1 \mathbf{h}_j + \mathbf{W}_t \mathbf{h}_i)`, or a
            module that maps target states ``[E, heads, out_channels]``, source states of the same shape and edge
            features ``[E, edge_dim]`` (or ``None``) to scores ``[E, heads]``.
        rnn: ``"lstm"``, ``"gru"``, ``"rnn"``, or a factory ``(in_channels, out_channels) -> module`` of sequence
            models that read a ``PackedSequence`` (slower; see :class:`~torch_goat.nn.packed_rnn.PackedRNN`).
        bidirectional: Whether a built-in RNN reads in both directions.
        max_neighbors: The maximum number of neighbours that are read besides the node itself; all if ``None``. The
            softmax runs over the selected ones.
        neighbor_selection: ``"random"`` draws them uniformly without replacement, again in every training step and
            always the same in evaluation; ``"top"`` takes the highest scores, per head.
        negative_slope: The slope of LeakyReLU for negative values.
        dropout: The probability of dropping a coefficient in training; it never changes the order.
        add_self_loops: Whether a node is in its own neighbourhood. Existing self loops are replaced.
        edge_dim: The number of edge features, or ``-1`` to infer it from the first call; they enter the score only. An
            added self loop gets the mean of its node's.
        residual: Whether to add a linear map of the target's input to the output.
        mean_residual: Whether to add the mean of the neighbours' states :math:`\mathbf{W}_1 \mathbf{h}_j`, weighted by
            their coefficients, to the output: the output of GAT.
        scaling: The factor of a state before it is read: ``"softmax"``, its coefficient, or ``"size"``, its coefficient
            times the number of neighbours, which is 1 on average.
        state_norm: Whether to normalise the states per node and head before they are scaled.
        state_dropout: The probability of dropping an element of the states that the RNN reads.
        rnn_init: The initialisation of a built-in RNN: ``"orthogonal"`` (default), with orthogonal recurrent matrices
            and a forget gate bias of 1, or ``"uniform"``, as in PyTorch.
        bias: Whether to add a bias to the output. The RNN always has its own.
        backend: The backend of a built-in RNN, a name of :func:`torch_goat.backends`, or ``"auto"``.

    Attributes:
        checks: Whether input data is checked in this layer; ``None`` is the default of :func:`torch_goat.set_checks`.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})` or
          :math:`((|\mathcal{V}_s|, F_s), (|\mathcal{V}_t|, F_t))` if bipartite, edge indices
          :math:`(2, |\mathcal{E}|)` or a sparse matrix :math:`(|\mathcal{V}_t|, |\mathcal{V}_s|)`, edge features
          :math:`(|\mathcal{E}|, D)` *(optional)*
        - **output:** :math:`(|\mathcal{V}_t|, H F_{out})`, or :math:`(|\mathcal{V}_t|, F_{out})` if heads are summed
          or averaged
    """

    checks: bool | None = None

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
                f"in_channels={in_channels!r} means that sources and targets are different nodes, without self loops; "
                f"pass add_self_loops=False."
            )
        self.in_channels = (source_channels, target_channels) if pair else source_channels
        self._bipartite = pair
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
        """The layer of the paper's equations; ``options`` are those that do not extend them."""
        if extra := sorted(_BEYOND_THE_PAPER.keys() & options.keys()):
            raise ValueError(
                f"GOATConv.paper is the layer of the paper's equations, which have no {extra[0]}; use GOATConv(...)."
            )
        without = dict(_BEYOND_THE_PAPER)
        if callable(options.get("rnn")):
            del without["rnn_init"]  # a factory draws its own weights
        return cls(in_channels, out_channels, heads, **without, **options)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for module in self.children():
            module.reset_parameters()
        zeros(self.bias)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor | Neighborhoods,
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
            x: The input states. A pair ``(x_src, x_dst)`` is bipartite: with one ``in_channels``, targets are the first
                rows of the sources, as in PyG's sampled mini-batches, and ``(x, None)`` takes them from there. With a
                pair of ``in_channels``, ``(x, None)`` means that targets have no states and do not enter the scores.
            edge_index: COO ``[2, E]`` in any order, an ``EdgeIndex``, a torch sparse matrix as PyG's ``adj_t`` (rows
                are targets; its values are the edge features if ``edge_dim=1`` and are ignored otherwise), or
                :class:`~torch_goat.nn.Neighborhoods` built from such edges.
            edge_attr: The edge features, in the order of the edges as given.
            ordering: An order to replay instead of sorting, as ``return_ordering=True`` returned it. Coefficients are
                still computed from the current weights.
            size: The numbers of sources and targets, if ``x`` does not determine them.
            n_id: The numbers of the sources in the graph that this is a part of. In evaluation, a random selection of
                neighbours uses them, and is then that of the whole graph. Not for a pair of ``in_channels``.
            return_attention_weights: Whether to return ``(edge_index, alpha)``, too: the input edges with self loops
                appended and their coefficients before dropout ``[E, heads]``, zero where a neighbour was not selected.
            return_ordering: Whether to return the :class:`~torch_goat.nn.Ordering`, too.

        Returns:
            ``out``, or ``(out, (edge_index, alpha))``, ``(out, ordering)``, ``(out, (edge_index, alpha), ordering)``.
        """
        if ordering is not None and not isinstance(ordering, Ordering):
            raise TypeError(f"ordering must be an Ordering, got {type(ordering).__name__}.")
        if size is None and isinstance(edge_index, Neighborhoods):
            size = (edge_index.num_sources, edge_index.num_targets)
        x_src, x_dst, num_targets = self._states(x, size)  # [S, F], [T, F]
        if n_id is not None and (self._bipartite or n_id.shape != x_src.shape[:1]):
            raise ValueError(
                f"n_id must number the {x_src.size(0)} nodes of one set, got shape {list(n_id.shape)} for "
                f"in_channels={self.in_channels!r}."
            )
        hood, edge_attr = self._neighborhoods(edge_index, edge_attr, (x_src.size(0), num_targets))
        if self.max_neighbors is not None and self.neighbor_selection == "random":
            if ordering is not None:
                raise ValueError(
                    "an ordering cannot be replayed together with a random selection of neighbours; use "
                    "max_neighbors=None or neighbor_selection='top'."
                )
            hood = hood.keep(keep_random(hood, self.max_neighbors, self.training, n_id, self._bipartite))

        with torch.autocast(x_src.device.type, enabled=False):
            z_src, z_dst = self._project(x_src, x_dst)  # [S, K, C], [T, K, C], in float32 at least
            if edge_attr is not None:
                edge_attr = hood.edge_features(edge_attr)[hood.edge].to(z_src.dtype)  # [E, D]
            score = self.attention(z_src, z_dst, hood, edge_attr)  # Eq. 1, [K, E]
            score = score.to(torch.promote_types(score.dtype, torch.float32))
            token, source, read = self._order(score, x_src, hood, ordering)  # Eq. 2, [K, E], [K, E]
            score = score.gather(1, token)
            alpha = segment_softmax(score, read)  # the coefficients of Eq. 3, [K, E]
            weight = self._message(alpha, token, hood)
            # Copies of an edge may differ in their features, and then not be in the order of their tokens.
            places = Places(source, read, token if read is hood and edge_attr is None else None)
            mean = None
            if self.mean_residual:
                mean = weighted_mean(self.rnn.kernel(z_src), z_src, places, weight)  # [T, K, C]
            if self.scaling == "size":
                weight = weight * read.sizes.to(weight.dtype)
            if self.norm is not None:
                # Before the coefficients are applied: after, it would cancel them and their gradient.
                z_src = self.norm(z_src.flatten(1).to(self.norm.weight.dtype)).view_as(z_src)
            z_src = drop(z_src, self.state_dropout, self.training).to(x_src.dtype)
        out = self.rnn(z_src, places, weight)  # Eq. 3, [T, K, C]
        if mean is not None:
            out = out + mean.to(out.dtype)

        if self.head_pooling == "cat":
            out = out.flatten(1)  # [T, K * C]
        else:
            out = out.sum(dim=1) if self.head_pooling == "sum" else out.mean(dim=1)  # [T, C]
        if self.res is not None:
            out = out + self.res(x_dst)
        if self.bias is not None:
            out = out + self.bias

        results: list[Any] = [out]
        if return_attention_weights:
            results.append((hood.edge_index, hood.by_edge(alpha, token)))
        if return_ordering:
            results.append(Ordering(read.ptr, token, source, score, alpha))
        return tuple(results) if len(results) > 1 else out

    def _states(
        self, x: Tensor | tuple[Tensor, Tensor | None], size: tuple[int, int] | None
    ) -> tuple[Tensor, Tensor | None, int]:
        """The states of sources and targets and the number of targets, checked."""
        x_src, x_dst = x if isinstance(x, tuple) else (x, x if size is None or self._bipartite else None)
        source_channels, target_channels = _both(self.in_channels)
        check_features("x" if x_src is x_dst else "x[0] (sources)", x_src, source_channels, self.checks)
        if x_dst is not None and (x_dst is not x_src or source_channels != target_channels):
            check_features("x[1] (targets)", x_dst, target_channels, self.checks)
        weight = self.lin_src.weight
        if x_src.dtype != weight.dtype and not torch.is_autocast_enabled(x_src.device.type):
            raise TypeError(f"x is {x_src.dtype}, but the layer's weights are {weight.dtype}; convert one of them.")

        num_sources, num_targets = size or (None, None)
        if num_targets is None:
            num_targets = (x_src if x_dst is None else x_dst).size(0)
        if num_sources is not None and num_sources != x_src.size(0):
            raise ValueError(f"size says {num_sources} sources, but x has {x_src.size(0)} rows for them.")
        if x_dst is not None and num_targets != x_dst.size(0):
            raise ValueError(f"size says {num_targets} targets, but x has {x_dst.size(0)} rows for them.")
        if not self._bipartite:
            if num_targets > x_src.size(0):
                raise ValueError(
                    f"{num_targets} targets cannot be the first rows of {x_src.size(0)} sources; for "
                    f"different node sets build the layer with a pair of in_channels."
                )
            if x_dst is None:
                x_dst = x_src if num_targets == x_src.size(0) else x_src[:num_targets]
        elif x_dst is None and self.residual:
            raise ValueError("residual=True needs the targets' states, but x is (x, None).")
        return x_src, x_dst, num_targets

    def _neighborhoods(
        self, edge_index: Tensor | Neighborhoods, edge_attr: Tensor | None, num_nodes: tuple[int, int]
    ) -> tuple[Neighborhoods, Tensor | None]:
        """The layout of the edges, and the features of the edges as given."""
        if not isinstance(edge_index, Neighborhoods):
            edge_index, edge_attr = to_edges(edge_index, edge_attr, self.edge_dim, *num_nodes, self.checks)
            return neighborhoods(edge_index, num_nodes, self.add_self_loops, self.checks), edge_attr
        hood = edge_index
        if (hood.num_sources, hood.num_targets) != num_nodes:
            raise ValueError(f"x has {num_nodes[0]} sources and {num_nodes[1]} targets, but edge_index is {hood}.")
        if hood.add_self_loops != self.add_self_loops:
            raise ValueError(
                f"the layer has add_self_loops={self.add_self_loops}, but the neighborhoods were built with "
                f"add_self_loops={hood.add_self_loops}."
            )
        return hood, check_edge_attr(edge_attr, self.edge_dim, hood.num_given, self.checks)

    def _project(self, x_src: Tensor, x_dst: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """``W_1 h`` of sources and targets, for every head, in float32 at least since scores are computed from it."""

        def project(linear: Linear, x: Tensor) -> Tensor:
            if is_uninitialized_parameter(linear.weight):
                linear.initialize_parameters(linear, (x,))
            wide = torch.promote_types(x.dtype, torch.float32)
            return F.linear(x.to(wide), linear.weight.to(wide)).view(-1, self.heads, self.out_channels)

        z_src = project(self.lin_src, x_src)
        if x_dst is None or (x_dst is x_src and self.lin_dst is None):
            return z_src, None if x_dst is None else z_src
        return z_src, project(self.lin_src if self.lin_dst is None else self.lin_dst, x_dst)

    def _order(
        self, score: Tensor, x_src: Tensor, hood: Neighborhoods, ordering: Ordering | None
    ) -> tuple[Tensor, Tensor, Neighborhoods]:
        """Eq. 2: the tokens in order and their sources ``[K, E]``, and neighbourhoods with the segments they fill."""
        top, read = self.max_neighbors if self.neighbor_selection == "top" else None, hood
        if top is not None:
            # The number of neighbours that are kept does not depend on the order.
            any_order = torch.arange(hood.num_places, device=hood.source.device).view(1, -1)
            read = hood.keep(keep_top(hood, any_order, top, self._bipartite)[0])
        if ordering is not None:
            ordering.check_fits(hood, read.ptr, self.heads, self.checks)
            # Tensors of inference mode cannot be saved for the backward.
            given = (ordering.token, ordering.source)
            token, source = (value.clone() if value.is_inference() else value for value in given)
            return token, source, read
        token, source = sort_tokens(score.detach(), x_src.detach(), hood.source, hood.target, hood.num_targets)
        if top is not None:
            kept = keep_top(hood, token, top, self._bipartite)
            token, source = (value[kept].view(self.heads, -1) for value in (token, source))
        return token, source, read

    def _message(self, alpha: Tensor, token: Tensor, hood: Neighborhoods) -> Tensor:
        """The coefficients after dropout and after an explainer's mask ``[K, E]``.

        PyG's explainers and users' hooks observe and mask messages edge by edge in :meth:`propagate`. The message of
        this layer is its coefficient. Without an observer, the conversion to edges and back is skipped.
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
