import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import GroupNorm, Module, Parameter
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import zeros
from torch_geometric.utils import is_torch_sparse_tensor

from torch_goat.nn import inputs
from torch_goat.nn.attention import EdgeAttention, build_attention, fused_order, fuses, project
from torch_goat.nn.dropout import dropout as drop
from torch_goat.nn.ordering import Ordering
from torch_goat.nn.packed_rnn import PackedRNN
from torch_goat.nn.ragged_rnn import RaggedRNN
from torch_goat.ops.adjacency import to_matrix
from torch_goat.ops.checks import check_choice, check_count, check_finite, check_fraction, check_number
from torch_goat.ops.neighborhoods import Neighborhoods
from torch_goat.ops.places import Places
from torch_goat.ops.plackett_luce.order import compare, draw_order
from torch_goat.ops.segments import segment_softmax
from torch_goat.ops.selection import keep_random, keep_top, sort_neighbors
from torch_goat.ops.weighted_mean import weighted_mean

# The options that extend the paper's equations, with their values in the paper.
_BEYOND_THE_PAPER: dict[str, Any] = {
    "residual": False,
    "mean_residual": False,
    "scaling": "softmax",
    "state_norm": False,
    "state_dropout": 0.0,
    "order_noise": 0.0,
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

    Each head has its own :math:`\mathbf{W}_1`, :math:`\mathbf{w}_2` and RNN. Neighbours with equal scores are ordered
    by the first element in which their input states differ, ascending (Algorithm 1). Scores, softmax and sorting use at
    least float32. Each of several parallel edges is read. A target without neighbours gets zeros (plus the bias).

    Args:
        in_channels: The size of each input, or ``-1`` to infer it from the first call. A pair gives the sizes of the
            inputs of source and target nodes, which are then different node sets without self loops.
        out_channels: The size of one head's output. Each direction of a bidirectional RNN has half of it, rounded up;
            if it is odd, the last column of the backward direction is dropped.
        heads: The number of heads.
        concat: Whether to concatenate the heads (``heads * out_channels`` columns) or to average them.
        negative_slope: The slope of LeakyReLU for negative values.
        dropout: The probability of dropping a coefficient in training; it never changes the order.
        add_self_loops: Whether a node is in its own neighbourhood. Existing self loops are replaced.
        edge_dim: The number of edge features, or ``-1`` to infer it from the first call. They only affect the scores.
        fill_value: The edge features of added self loops: a number, a tensor, or how to reduce the features of the
            edges that point to the node (``"mean"``, ``"add"``, ``"min"``, ``"max"`` or ``"mul"``).
        bias: Whether to add a bias to the output. The RNN always has its own.
        residual: Whether to add a linear map of the target's input to the output.
        head_pooling: How to combine the heads: ``"cat"``, ``"sum"`` or ``"mean"``; ``None`` leaves it to ``concat``.
        attention: ``"gat"`` (the paper); ``"gatv2"``, with the scores
            :math:`\mathbf{w}_2^{\top} \mathrm{LeakyReLU}(\mathbf{W}_1 \mathbf{h}_j + \mathbf{W}_t \mathbf{h}_i)`; or a
            module that maps target states ``[E, heads, out_channels]``, source states of the same shape and edge
            features ``[E, edge_dim]`` (or ``None``) to scores ``[E, heads]``.
        rnn: ``"lstm"``, ``"gru"`` or ``"rnn"``; ``"mingru"`` or ``"minlstm"``, which have no recurrent weights and are
            fast at any width (see :class:`~torch_goat.nn.ragged_rnn.RaggedRNN`); or a factory
            ``(in_channels, out_channels) -> module`` of modules that read a ``PackedSequence`` (slower; see
            :class:`~torch_goat.nn.packed_rnn.PackedRNN`).
        bidirectional: Whether a built-in RNN reads in both directions.
        max_neighbors: The maximum number of neighbours to read besides the node itself; all if ``None``. The softmax
            runs over the selected neighbours.
        neighbor_selection: ``"random"`` draws neighbours uniformly without replacement: new ones in every training
            step, always the same ones in evaluation (of parallel edges, by their order in ``edge_index``). ``"top"``
            takes those with the highest scores, per head.
        mean_residual: Whether to add GAT's output to that of the RNN: the mean of the neighbours' states
            :math:`\mathbf{W}_1 \mathbf{h}_j`, weighted by their coefficients.
        scaling: What a state is multiplied by before the RNN reads it: ``"softmax"``, its coefficient; or ``"size"``,
            its coefficient times the number of neighbours, which is 1 on average.
        state_norm: Whether to normalise the states per node and head before they are scaled.
        state_dropout: The probability of dropping an element of the states that the RNN reads.
        order_noise: If positive, the order gets a gradient of its own in training: the result is compared with that of
            a second order, drawn by adding noise to the scores. The output does not change. The value is the noise in
            standard deviations of the scores; 0.1 to 0.3 works well. It can be changed during training.
        rnn_init: The initialisation of a built-in RNN: ``"orthogonal"`` (default), with orthogonal recurrent matrices
            and gate biases that let a state keep most of itself, or ``"uniform"``, as in PyTorch.
        flow: ``"source_to_target"`` or ``"target_to_source"``, as in PyG: with the latter, sources are
            ``edge_index[1]`` and targets ``edge_index[0]``.
        backend: The backend of a built-in RNN, a name of :func:`torch_goat.backends`, or ``"auto"``.

    Attributes:
        checks: Whether this layer checks input data; ``None`` uses the default set by :func:`torch_goat.set_checks`.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})` or
          :math:`((|\mathcal{V}_s|, F_s), (|\mathcal{V}_t|, F_t))` if bipartite, edge indices
          :math:`(2, |\mathcal{E}|)` or a sparse matrix :math:`(|\mathcal{V}_t|, |\mathcal{V}_s|)`, edge features
          :math:`(|\mathcal{E}|, D)` *(optional)*
        - **output:** :math:`(|\mathcal{V}_t|, H F_{out})`, or :math:`(|\mathcal{V}_t|, F_{out})` if heads are summed
          or averaged
    """

    checks: bool | None = None
    _warned = False  # of a residual without states of targets
    __prepare_scriptable__ = inputs.refuse_scripting

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        residual: bool = False,
        *,
        head_pooling: Literal["cat", "sum", "mean"] | None = None,
        attention: str | Module = "gat",
        rnn: str | Callable[[int, int], Module] = "lstm",
        bidirectional: bool = True,
        max_neighbors: int | None = None,
        neighbor_selection: Literal["random", "top"] = "random",
        mean_residual: bool = True,
        scaling: Literal["softmax", "size"] = "softmax",
        state_norm: bool = False,
        state_dropout: float = 0.0,
        order_noise: float = 0.0,
        rnn_init: Literal["uniform", "orthogonal"] | None = None,
        flow: Literal["source_to_target", "target_to_source"] = "source_to_target",
        backend: str = "auto",
    ) -> None:
        check_choice("flow", flow, "source_to_target", "target_to_source")
        super().__init__(aggr=None, node_dim=0, flow=flow)
        out_channels, heads = check_count("out_channels", out_channels), check_count("heads", heads)
        head_pooling = head_pooling or ("cat" if concat else "mean")
        check_choice("head_pooling", head_pooling, "cat", "sum", "mean")
        if head_pooling == "cat" and not concat:
            raise ValueError("concat=False cannot be combined with head_pooling='cat'; choose 'sum' or 'mean'.")
        check_choice("neighbor_selection", neighbor_selection, "random", "top")
        if max_neighbors is not None:
            max_neighbors = check_count("max_neighbors", max_neighbors, otherwise=" or None")
        check_choice("scaling", scaling, "softmax", "size")
        if edge_dim is not None:
            edge_dim = check_count("edge_dim", edge_dim, -1, " or None")
        if isinstance(fill_value, str):
            check_choice("fill_value", fill_value, "mean", "add", "min", "max", "mul")
        elif not isinstance(fill_value, Tensor):
            check_number("fill_value", fill_value)
        if callable(rnn) and rnn_init is not None:
            raise ValueError(f"rnn_init={rnn_init!r} is for built-in RNNs; a factory draws its own weights.")
        source_channels, target_channels = inputs.both(in_channels)
        self._bipartite = isinstance(in_channels, tuple | list)
        self.out_channels, self.heads = out_channels, heads
        self.concat, self.head_pooling = head_pooling == "cat", head_pooling
        self.negative_slope = check_number("negative_slope", negative_slope)
        self.dropout = check_fraction("dropout", dropout)
        self.state_dropout = check_fraction("state_dropout", state_dropout)
        self.order_noise = order_noise
        self.add_self_loops = add_self_loops and not self._bipartite  # nodes of different sets are never the same
        self.max_neighbors, self.neighbor_selection = max_neighbors, neighbor_selection
        self._edge_dim, self.fill_value = edge_dim, fill_value
        self.residual, self.mean_residual, self.scaling = residual, mean_residual, scaling

        self.lin_src = _linear(source_channels, heads * out_channels)
        own = self._bipartite or attention == "gatv2"  # whether targets have a projection of their own
        self.lin_dst = _linear(target_channels, heads * out_channels) if own else None
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

    @property
    def in_channels(self) -> int | tuple[int, int]:
        """The size of each input, -1 before the first call of a layer that infers it."""
        return self._widths if self._bipartite else self._widths[0]

    @property
    def _widths(self) -> tuple[int, int]:
        """The sizes of the inputs of sources and targets."""
        return self.lin_src.in_channels, (self.lin_dst or self.lin_src).in_channels

    @property
    def edge_dim(self) -> int | None:
        """The number of edge features, -1 before the first call of a layer that infers it."""
        lin_edge = getattr(self.attention, "lin_edge", None)
        return self._edge_dim if lin_edge is None else lin_edge.in_channels

    @property
    def order_noise(self) -> float:
        """The noise of the order that is drawn in training, in standard deviations of the scores; can be set."""
        return float(self._noise)

    @order_noise.setter
    def order_noise(self, value: float) -> None:
        noise = check_number("order_noise", value, least=0)
        self._compares = noise > 0
        # A tensor, so that compiled code reads a new value without being compiled again.
        self._noise = torch.tensor(noise, dtype=torch.double, device="cpu")

    @classmethod
    def paper(cls, in_channels: int | tuple[int, int], out_channels: int, heads: int = 1, **options: Any) -> "GOATConv":
        """The layer of the paper's equations; ``options`` that extend these equations raise an error."""
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
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
        *,
        ordering: Ordering | None = None,
        order_by: Tensor | None = None,
        n_id: Tensor | None = None,
        return_ordering: bool = False,
    ) -> Any:
        r"""Runs the layer.

        Args:
            x: The input states, dense or sparse, or a pair ``(x_src, x_dst)`` for sources and targets. With one
                ``in_channels``, targets are the first sources, as in PyG's sampled mini-batches, and ``(x, None)``
                takes their states from the sources. With a pair of ``in_channels``, ``(x, None)`` means that targets
                have no states: they do not enter the scores, and there is no ``residual``.
            edge_index: COO ``[2, E]`` in any order, an ``EdgeIndex``, a torch sparse matrix as PyG's ``adj_t`` (rows
                are targets; its values are the edge features, and are ignored if ``edge_dim`` is ``None``), or
                :class:`~torch_goat.nn.Neighborhoods` built from such edges, to which ``flow`` does not apply.
            edge_attr: The edge features, in the order of the edges in ``edge_index``.
            size: The numbers of sources and targets, if neither ``x`` nor a sparse matrix determines them.
            return_attention_weights: Whether to also return ``(edge_index, alpha)``: the input edges with self loops
                appended, and their coefficients before dropout ``[E, heads]``, zero where a neighbour was not selected.
                For a sparse matrix, a matrix of the same layout with the values ``alpha`` is returned instead.
            ordering: An order to replay instead of sorting, as returned by ``return_ordering=True``. Coefficients are
                still computed from the current weights.
            order_by: A number for each edge ``[E]``, such as a time, in the order of the edges in ``edge_index``. All
                heads read an added self loop first, then the neighbours in decreasing order of this number. Edges with
                equal numbers are ordered by Algorithm 1, and by their features if their sources have equal states. Not
                supported for sparse matrices.
            n_id: The index of each source in the whole graph, if this graph is a part of it, or in its own graph, if
                this is a batch of several graphs. With ``neighbor_selection="random"``, evaluation then selects the
                same neighbours as in the whole graph or in each graph alone. Not supported for a pair of
                ``in_channels``.
            return_ordering: Whether to also return the :class:`~torch_goat.nn.Ordering`.

        Returns:
            ``out``, or ``(out, (edge_index, alpha))``, ``(out, ordering)``, ``(out, (edge_index, alpha), ordering)``.
        """
        inputs.check_given_order(ordering, order_by, edge_index, self.checks)
        inputs.check_exporter()
        size = size or inputs.numbers_of_nodes(x, edge_index)
        dtype = self.lin_src.weight.dtype
        x_src, x_dst, num_targets = inputs.node_states(  # [S, F], [T, F]
            x, size, self._widths, self._bipartite, dtype, self.checks
        )
        inputs.check_numbering(n_id, x_src.size(0), self.in_channels)
        sizes = (x_src.size(0), num_targets)
        hood, edge_attr = inputs.layout(
            edge_index, edge_attr, self.edge_dim, sizes, self.add_self_loops, self.flow, self.checks
        )
        rank = None if order_by is None else inputs.key_ranks(order_by, hood)  # [E], by token
        if self.max_neighbors is not None and self.neighbor_selection == "random":
            if ordering is not None:
                raise ValueError(
                    "an ordering cannot be replayed together with a random selection of neighbours; use "
                    "max_neighbors=None or neighbor_selection='top'."
                )
            kept = keep_random(hood, self.max_neighbors, self.training, n_id, self._bipartite)
            hood, rank = hood.keep(kept), None if rank is None else rank[kept]

        with torch.autocast(x_src.device.type, enabled=False):
            z_src, z_dst = self._project(x_src, x_dst)  # [S, K, C], [T, K, C], in float32 at least
            if edge_attr is not None:
                edge_attr = hood.edge_features(edge_attr, self.fill_value)[hood.edge].to(z_src.dtype)  # [E, D]
            kernel = self.rnn.kernel(z_src)
            given = ordering is not None or rank is not None
            top = self.max_neighbors is not None and self.neighbor_selection == "top"
            if (
                kernel == "triton"
                and not (given or top)
                and fuses(self.attention, z_src, z_dst, x_src, hood, edge_attr)
            ):
                read = hood
                token, source, score, alpha = fused_order(self.attention, z_src, z_dst, x_src, hood)
            else:
                score = self.attention(z_src, z_dst, hood, edge_attr)  # Eq. 1, [K, E]
                score = score.to(torch.promote_types(score.dtype, torch.float32))
                if isinstance(self.attention, EdgeAttention):
                    check_finite("the result of the attention module", score.t(), self.checks)
                token, source, read = self._order(  # Eq. 2, [K, E], [K, E]
                    score, x_src, hood, ordering, rank, edge_attr
                )
                score = score.gather(1, token)
                alpha = segment_softmax(score, read)  # the coefficients of Eq. 3, [K, E]
            weight = self._message(alpha, token, hood)
            # Copies of an edge may differ in their features, and then not be in the order of their tokens.
            places = Places(source, read, token if read is hood and edge_attr is None else None)
            mean = None
            if self.mean_residual:
                mean = weighted_mean(kernel, z_src, places, weight)  # [T, K, C]
            if self.scaling == "size":
                weight = weight * read.sizes.to(weight.dtype)
            if self.norm is not None:
                # Before the coefficients are applied: after, it would cancel them and their gradient.
                z_src = self.norm(z_src.flatten(1).to(self.norm.weight.dtype)).view_as(z_src)
            z_src = drop(z_src, self.state_dropout, self.training).to(x_src.dtype)
        out = self.rnn(z_src, places, weight)  # Eq. 3, [T, K, C]
        if self._compares and self.training and score.requires_grad and not given:
            with torch.no_grad():  # the same neighbours in another order
                place, gradient = draw_order(kernel, score, read, self._noise)
                drawn = Places(source.gather(1, place), read), weight.gather(1, place)
                del place  # [K, E], as large as the sources
                other = self.rnn(z_src, *drawn)
            out = compare(out, other, score, gradient, read)
        if mean is not None:
            out = out + mean.to(out.dtype)

        if self.head_pooling == "cat":
            out = out.flatten(1)  # [T, K * C]
        else:
            out = out.sum(dim=1) if self.head_pooling == "sum" else out.mean(dim=1)  # [T, C]
        if self.res is not None and x_dst is not None:
            out = out + self.res(x_dst)
        elif self.res is not None:
            self._warn_of_residual()
        if self.bias is not None:
            out = out + self.bias

        results: list[Any] = [out]
        if return_attention_weights:
            per_edge = hood.by_edge(alpha, token)
            if isinstance(edge_index, Tensor) and is_torch_sparse_tensor(edge_index):
                results.append(to_matrix(edge_index, hood.edge_index, per_edge))
            else:
                results.append((hood.given_edges(), per_edge))
        if return_ordering:
            results.append(Ordering.unchecked(read.ptr.clone(), token, source, score, alpha))
        return tuple(results) if len(results) > 1 else out

    def _project(self, x_src: Tensor, x_dst: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """``W_1 h`` of sources and targets, for every head, in float32 at least since scores are computed from it."""

        def wide(linear: Linear, x: Tensor) -> Tensor:
            x = x.to(torch.promote_types(x.dtype, torch.float32))
            return project(linear, x).view(-1, self.heads, self.out_channels)

        z_src = wide(self.lin_src, x_src)
        if x_dst is None or (x_dst is x_src and self.lin_dst is None):
            return z_src, None if x_dst is None else z_src
        return z_src, wide(self.lin_src if self.lin_dst is None else self.lin_dst, x_dst)

    def _order(
        self,
        score: Tensor,
        x_src: Tensor,
        hood: Neighborhoods,
        ordering: Ordering | None,
        rank: Tensor | None,
        edge_attr: Tensor | None,
    ) -> tuple[Tensor, Tensor, Neighborhoods]:
        """Eq. 2: the tokens in order and their sources ``[K, E]``, and neighbourhoods with the segments they fill."""
        top, read = self.max_neighbors if self.neighbor_selection == "top" else None, hood
        if top is not None:
            # The number of neighbours that are kept does not depend on the order.
            any_order = torch.arange(hood.num_places, device=hood.source.device).view(1, -1)
            read = hood.keep(keep_top(hood, any_order, top, self._bipartite)[0])
        if ordering is None:
            score, x_src = score.detach(), x_src.detach()
            token, source = sort_neighbors(score, x_src, edge_attr, hood, rank, top, self._bipartite)
            return token, source, read
        ordering.check_fits(hood, read, self.heads, self.checks)
        if torch.compiler.is_compiling() or not ordering.token.is_inference():
            return ordering.token, ordering.source, read
        return ordering.token.clone(), ordering.source.clone(), read  # which can be saved for the backward

    def _message(self, alpha: Tensor, token: Tensor, hood: Neighborhoods) -> Tensor:
        """The coefficients after dropout and after an explainer's mask ``[K, E]``.

        PyG's explainers and users' hooks observe and mask messages edge by edge in :meth:`propagate`. The message of
        this layer is its coefficient. Without an observer, the conversion to edges and back is skipped.
        """
        if not (self.explain or any(getattr(self, name) for name in _HOOKS)):
            return self.message(alpha)
        # propagate_type: (alpha: Tensor)
        size = (hood.num_sources, hood.num_targets)
        per_edge = self.propagate(hood.given_edges(), alpha=hood.by_edge(alpha, token), size=size)
        return per_edge.gather(0, hood.edge[token].t()).t()

    def message(self, alpha: Tensor) -> Tensor:
        return drop(alpha, self.dropout, self.training)

    def aggregate(self, inputs: Tensor) -> Tensor:
        return inputs

    def _warn_of_residual(self) -> None:
        if not torch.compiler.is_compiling() and not self._warned:
            self._warned = True
            warnings.warn(
                "residual=True has no effect in calls with x = (x, None): targets have no states.", stacklevel=2
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"


def _linear(in_channels: int, out_channels: int) -> Linear:
    return Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
