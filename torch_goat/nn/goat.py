import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import Proxy
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.loader import CachedLoader
from torch_geometric.nn.models.basic_gnn import BasicGNN
from tqdm import tqdm

from torch_goat.nn.goat_conv import GOATConv
from torch_goat.nn.inference import run_in_batches
from torch_goat.nn.ordering import Ordering
from torch_goat.ops.checks import check_choice, check_count
from torch_goat.ops.neighborhoods import Neighborhoods


class GOAT(BasicGNN):
    r"""A graph neural network of :class:`~torch_goat.nn.GOATConv` layers, with the options of PyG's models.

    Unlike PyG's models, it ends in a linear layer if ``out_channels`` is given, since the output of an RNN lies in
    :math:`(-1, 1)`.

    Args:
        in_channels: The size of each input, or ``-1`` to infer it from the first call.
        hidden_channels: The size of each layer's output, all heads together.
        num_layers: The number of layers.
        out_channels: The size of the output; if ``None``, it is ``hidden_channels``, and there is no linear layer.
        dropout: The probability of dropping an element between layers, and of dropping a coefficient within a layer.
        act, act_first, act_kwargs, norm, norm_kwargs: As in PyG.
        jk: Jumping knowledge: ``None``, ``"last"``, ``"cat"``, ``"max"`` or ``"lstm"``.
        **kwargs: The options of :class:`~torch_goat.nn.GOATConv`, including ``heads``; ``v2=True`` means
            ``attention="gatv2"``, as in PyG's ``GAT``. A module passed as ``attention`` is copied for each layer.
    """

    supports_edge_weight: Final[bool] = False
    supports_edge_attr: Final[bool] = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        dropout: float = 0.0,
        act: str | Callable[..., Any] | None = "relu",
        act_first: bool = False,
        act_kwargs: dict[str, Any] | None = None,
        norm: str | Callable[..., Any] | None = None,
        norm_kwargs: dict[str, Any] | None = None,
        jk: str | None = None,
        **kwargs: Any,
    ) -> None:
        num_layers = check_count("num_layers", num_layers)
        if out_channels is not None:
            out_channels = check_count("out_channels", out_channels, otherwise=" or None")
        if jk is not None:
            check_choice("jk", jk, "last", "cat", "max", "lstm")
        # With jumping knowledge, BasicGNN ends in a linear layer; "last" adds only that.
        jk = "last" if jk is None and out_channels is not None else jk
        sizes = in_channels, hidden_channels, num_layers, out_channels
        super().__init__(*sizes, dropout, act, act_first, act_kwargs, norm, norm_kwargs, jk, **kwargs)

    def init_conv(self, in_channels: int | tuple[int, int], out_channels: int, **kwargs: Any) -> GOATConv:
        if kwargs.pop("v2", False) and kwargs.setdefault("attention", "gatv2") != "gatv2":
            raise ValueError(f"v2=True cannot be combined with attention={kwargs['attention']!r}.")
        heads = check_count("heads", kwargs.get("heads", 1))
        if (kwargs.get("head_pooling") or ("cat" if kwargs.get("concat", True) else "mean")) == "cat":
            if out_channels % heads:
                raise ValueError(
                    f"hidden_channels={out_channels} is not divisible by heads={heads}; choose another width or "
                    f"concat=False."
                )
            out_channels //= heads
        if isinstance(kwargs.get("attention"), Module):
            kwargs["attention"] = copy.deepcopy(kwargs["attention"])
        return GOATConv(in_channels, out_channels, dropout=self.dropout.p, **kwargs)

    @property
    def order_noise(self) -> float:
        """The noise of the order that all layers draw in training; it can be set at any time."""
        return self.convs[0].order_noise

    @order_noise.setter
    def order_noise(self, value: float) -> None:
        for conv in self.convs:
            conv.order_noise = value

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Neighborhoods,
        edge_weight: None = None,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        num_sampled_nodes_per_hop: list[int] | None = None,
        num_sampled_edges_per_hop: list[int] | None = None,
        *,
        orderings: Sequence[Ordering | None] | None = None,
        order_by: Tensor | None = None,
        n_id: Tensor | None = None,
        return_orderings: bool = False,
    ) -> Any:
        """Runs the network.

        A network that was converted by PyG's ``to_hetero`` ignores ``edge_weight``, ``orderings``, ``order_by``,
        ``n_id`` and ``return_orderings``.

        Args:
            x: The node features ``[N, in_channels]``.
            edge_index: The edges, in any form that :class:`~torch_goat.nn.GOATConv` takes.
            edge_weight: Must be ``None``; the argument only keeps the order of PyG's arguments. Pass edge weights as
                ``edge_attr``.
            edge_attr: The edge features.
            batch: The graph of each node, for normalisation layers that use it.
            batch_size: The number of graphs.
            num_sampled_nodes_per_hop: The number of nodes per hop of a sampled batch, to trim each layer to the part
                that later layers read, as in PyG.
            num_sampled_edges_per_hop: The number of edges per hop.
            orderings: An ordering to replay for each layer, or ``None`` for layers that sort.
            order_by: A number per edge by which all layers order the neighbours; see :class:`~torch_goat.nn.GOATConv`.
            n_id: The indices of the nodes in the whole graph; see :class:`~torch_goat.nn.GOATConv`.
            return_orderings: Whether to return ``(out, orderings)``.
        """
        if isinstance(x, Proxy):  # to_hetero traces with all arguments given
            edge_weight, orderings, order_by, n_id, return_orderings = None, None, None, None, False
        if edge_weight is not None:
            raise ValueError(
                f"GOAT reads no edge weights, got edge_weight of type {type(edge_weight).__name__}; pass them as "
                f"edge_attr= to a network with edge_dim=1."
            )
        if orderings is not None and len(orderings) != self.num_layers:
            raise ValueError(f"orderings has {len(orderings)} entries, but there are {self.num_layers} GOAT layers.")
        states, used = [], []
        for layer, conv in enumerate(self.convs):
            if num_sampled_nodes_per_hop is not None:
                if isinstance(edge_index, Neighborhoods):
                    raise ValueError("Neighborhoods cannot be trimmed; pass edge_index with num_sampled_nodes_per_hop.")
                num_edges = edge_index.size(1)
                x, edge_index, edge_attr = self._trim(
                    layer, num_sampled_nodes_per_hop, num_sampled_edges_per_hop, x, edge_index, edge_attr
                )
                cut = num_edges - edge_index.size(1)  # type: ignore[union-attr]  # the last hop
                order_by = None if order_by is None else order_by[: order_by.size(0) - cut]
                n_id = None if n_id is None else n_id[: x.size(0)]
            given = {"ordering": None if orderings is None else orderings[layer], "order_by": order_by, "n_id": n_id}
            x = conv(x, edge_index, edge_attr, **given, return_ordering=return_orderings)
            if return_orderings:
                x, ordering = x
                used.append(ordering)
            x = self._after(layer, x, batch, batch_size)
            states.append(x)
        if hasattr(self, "jk"):
            x = self.jk(states)
        if hasattr(self, "lin"):
            x = self.lin(x)
        return (x, used) if return_orderings else x

    def _after(self, layer: int, x: Tensor, batch: Tensor | None = None, batch_size: int | None = None) -> Tensor:
        """Normalisation, activation and dropout, except after a last layer that is the output."""
        if layer == self.num_layers - 1 and self.jk_mode is None:
            return x
        if self.act is not None and self.act_first:
            x = self.act(x)
        norm = self.norms[layer]
        x = norm(x, batch, batch_size) if self.supports_norm_batch else norm(x)
        if self.act is not None and not self.act_first:
            x = self.act(x)
        return self.dropout(x)

    @torch.no_grad()
    def inference(
        self,
        loader: Any,
        device: str | torch.device | None = None,
        embedding_device: str | torch.device = "cpu",
        progress_bar: bool = False,
        cache: bool = False,
        *,
        order_by: str | None = None,
    ) -> Tensor:
        """Computes the output of all nodes layer by layer, over batches of nodes with all their neighbours.

        Args:
            loader: :func:`~torch_goat.data.neighbor_loader` or PyG's ``NeighborLoader`` over all nodes, with all
                neighbours of one hop (``[-1]``), or any other iterable with the graph as ``data`` and batches with
                ``n_id``, ``batch_size``, ``edge_index`` and, if the layers read it, ``edge_attr``. The loader is read
                once per layer, and its batches must compute every node exactly once.
            device: Where the layers run; the model's device if ``None``.
            embedding_device: Where the states of all nodes are kept between layers.
            progress_bar: Whether to show progress.
            cache: Whether to keep the batches of the first layer in memory for the other layers.
            order_by: The batch attribute that holds a number per edge by which neighbours are ordered.
        """
        if self.training:
            raise ValueError("inference is for evaluation; call model.eval() first.")
        graph = getattr(loader, "data", None)
        x = getattr(graph[0] if isinstance(graph, tuple) else graph, "x", None)
        if x is None:
            raise ValueError(f"inference reads the node features from loader.data.x, which {loader!r} does not have.")
        device = device or next(self.parameters()).device
        names = ("n_id", "batch_size", "edge_index", "edge_attr", order_by)
        batches = CachedLoader(loader, device=device, transform=partial(_only, names)) if cache else loader
        bar = tqdm(total=self.num_layers * len(loader), desc="Inference", disable=not progress_bar)
        states, joined = torch.as_tensor(x).to(embedding_device), []
        for layer, conv in enumerate(self.convs):

            def run(batch: Data, conv: GOATConv = conv, states: Tensor = states) -> tuple[Tensor, Tensor]:
                edge_attr = None if conv.edge_dim is None else _read(batch, "edge_attr").to(device)
                near = states[batch.n_id.to(embedding_device)].to(device)
                n_id, edge_index = batch.n_id.to(device), batch.edge_index.to(device)
                keys = None if order_by is None else _read(batch, order_by).to(device)
                out = conv((near, near[: batch.batch_size]), edge_index, edge_attr, order_by=keys, n_id=n_id)
                return batch.n_id[: batch.batch_size], out

            after, count = run_in_batches(run, _counted(batches, bar), x.size(0), embedding_device)
            if after is None or not bool((count == 1).all()):
                node = int((count != 1).nonzero()[0])
                raise ValueError(f"the loader computes node {node} {int(count[node])} times, expected every node once.")
            # The whole layer at once: some normalisations look at all nodes.
            states = self._after(layer, after.to(device)).to(embedding_device)
            joined.append(states)
        bar.close()
        if hasattr(self, "jk"):
            states = self.jk([state.to(device) for state in joined])
        if hasattr(self, "lin"):
            states = self.lin(states.to(device))
        return states.to(embedding_device)


def _counted(batches: Iterable[Data], bar: Any) -> Iterator[Data]:
    for batch in batches:
        yield batch
        bar.update()


def _read(batch: Data, name: str) -> Tensor:
    if name not in batch:
        raise ValueError(f"inference reads {name!r} of every batch, but got {batch!r}; add it to the graph.")
    return batch[name]


def _only(names: Sequence[str | None], batch: Data) -> Data:
    """What inference reads of a batch."""
    return Data(**{name: batch[name] for name in names if name is not None and name in batch})
