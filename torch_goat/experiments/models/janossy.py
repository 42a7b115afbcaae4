import torch
from torch import Tensor
from torch_geometric.nn import SAGEConv

from torch_goat.nn.rnn_aggregation import RNNAggregation
from torch_goat.ops.adjacency import to_edges
from torch_goat.ops.neighborhoods import neighborhoods
from torch_goat.ops.selection import random_order


class JanossyConv(SAGEConv):
    r"""GraphSAGE with an RNN that reads the neighbours in random orders, as `"Janossy Pooling"
    <https://arxiv.org/abs/1811.01900>`_ approximates the mean over all of them:

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{W}_1 \mathbf{x}_i + \mathbf{W}_2 \, \frac{1}{M} \sum_{m=1}^{M}
        \mathrm{RNN}\left(\left[\mathbf{x}_{\pi_m(1)}, \ldots, \mathbf{x}_{\pi_m(k)}\right]\right)

    A training step draws one order (:math:`M = 1`) from PyTorch's generator. Evaluation averages over a fixed set of
    orders that depend only on the two node numbers of each edge: it is deterministic, and independent of the order of
    the edges and of the rest of the graph. With whole neighbourhoods and one order this is GraphSAGE-LSTM.

    The weights are those of PyG's ``SAGEConv`` with an :class:`~torch_goat.nn.RNNAggregation`. For a node without
    neighbours the RNN's state is zero; multi-edges are read once each.

    Args:
        in_channels: The width of the input, and of the RNN.
        out_channels: The width of the output.
        length: The number of neighbours that an order reads, :math:`k`; all of them if ``None``.
        permutations: The number of orders that evaluation averages over, :math:`M`.
        rnn: ``"lstm"``, ``"gru"``, ``"rnn"``, ``"mingru"`` or ``"minlstm"``.
        backend: A name of :func:`torch_goat.backends`, or ``"auto"``.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, edge indices :math:`(2, |\mathcal{E}|)`
        - **output:** node features :math:`(|\mathcal{V}|, F_{out})`
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        length: int | None = None,
        permutations: int = 1,
        rnn: str = "lstm",
        backend: str = "auto",
    ) -> None:
        if length is not None and length < 1:
            raise ValueError(f"length must be at least 1 or None, got {length}.")
        if permutations < 1:
            raise ValueError(f"permutations must be at least 1, got {permutations}.")
        super().__init__(in_channels, out_channels, aggr=RNNAggregation(in_channels, in_channels, rnn, backend=backend))
        self.length, self.permutations = length, permutations

    def forward(self, x: Tensor, edge_index: Tensor, n_id: Tensor | None = None) -> Tensor:
        """Runs the layer.

        Args:
            x: The node features ``[N, in_channels]``.
            edge_index: The edges in any order: COO ``[2, E]``, an ``EdgeIndex``, or a torch sparse matrix as ``adj_t``.
            n_id: The nodes in the numbering of the whole graph ``[N]``, if this is a part of it; evaluation then reads
                the same orders as on the whole graph.
        """
        num_nodes = x.size(0)
        edge_index, _ = to_edges(edge_index, None, None, num_nodes, num_nodes)
        hood = neighborhoods(edge_index, (num_nodes, num_nodes), add_self_loops=False, checks=self.aggr_module.checks)
        read, ptr = None, hood.ptr
        if self.length is not None:
            place = torch.arange(hood.target.numel(), device=x.device) - ptr[hood.target]  # [E], in its neighbourhood
            read = place < self.length
            ptr = hood.keep(read).ptr
        drawn = 1 if self.training else self.permutations
        state = x.new_zeros(num_nodes, self.in_channels)
        for number in range(drawn):
            order = random_order(hood, self.training, number, n_id)
            state = state + self.aggr_module.read(x, hood.source[order if read is None else order[read]], ptr)
        return self.lin_l(state / drawn) + self.lin_r(x)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, length={self.length}, "
            f"permutations={self.permutations})"
        )
