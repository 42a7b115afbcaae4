from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torch_goat.data.loader.blocks import Blocks
from torch_goat.experiments.models import Network
from torch_goat.experiments.models.layers import KINDS, Part
from torch_goat.nn import GOATConv
from torch_goat.nn.ordering import Ordering

_ROWS = 1 << 16  # nodes that a linear map reads at a time


class Inference:
    """The output of a network layer by layer, over blocks of nodes with all their neighbours: exact, in little memory.

    It equals what the network gives on the whole graph, up to rounding, for every kind of layer: blocks carry the
    degrees and node numbers of the graph to the layers that look at them.

    Args:
        network: The network, in evaluation.
        blocks: The graph.
        x: The features of all nodes ``[N, in_channels]``, in memory or in a file.
        edge_attr: The features of all edges, if the network reads them ``[E, edge_dim]``.
        part: This process's number and the number of processes that share the work.
        join: Adds up a tensor over these processes.
    """

    def __init__(
        self,
        network: Network,
        blocks: Blocks,
        x: Tensor,
        edge_attr: Tensor | None = None,
        *,
        part: tuple[int, int] = (0, 1),
        join: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        nodes, edges = blocks.csc.num_nodes, blocks.csc.source.numel()
        if x.shape != (nodes, network.in_channels):
            raise ValueError(f"x must have shape [{nodes}, {network.in_channels}], got {list(x.shape)}.")
        wanted = [edges, network.edge_dim] if network.edge_dim else None
        if (None if edge_attr is None else list(edge_attr.shape)) != wanted:
            shape = None if edge_attr is None else list(edge_attr.shape)
            raise ValueError(f"edge_attr has shape {shape}, but the network reads {wanted}.")
        self.network, self.blocks, self.x, self.edge_attr = network, blocks, x, edge_attr
        self._part, self._join = part, join or (lambda states: states)
        self._read: dict[bytes, list[Tensor]] = {}

    @torch.no_grad()
    def __call__(
        self,
        nodes: Tensor | None = None,
        *,
        orderings: Sequence[Ordering] | None = None,
        record: list[Ordering] | None = None,
    ) -> Tensor:
        """The output ``[N, out_channels]``, on the CPU.

        Args:
            nodes: The nodes whose output is asked for; the rows of others are undefined. All nodes if ``None``.
            orderings: An ordering of the whole graph to replay per GOAT layer, on the CPU.
            record: A list to put the orderings of the GOAT layers into; then all nodes are computed, by one process.
        """
        if self.network.training:
            raise ValueError("inference is for evaluation; call network.eval() first.")
        if record is not None and (nodes is not None or self._part[1] > 1):
            raise ValueError("orderings are recorded of all nodes, by one process.")
        sorting = self.network.num_orderings
        if orderings is not None and len(orderings) != sorting:
            raise ValueError(f"orderings has {len(orderings)} entries, but there are {sorting} GOAT layers.")
        wanted = self._wanted(nodes)
        states = self._rows(self.network.encode, self.x, wanted[0]) if self.network.encodes else self.x
        replay = iter([None] * sorting if orderings is None else orderings)
        for number, layer in enumerate(self.network.layers):
            sorts = isinstance(layer, GOATConv)
            held = next(replay) if sorts else None
            states = self._layer(number, states, wanted[number + 1], held, record if sorts else None)
        if self.network.output is not None:
            states = self._rows(self.network.decode, states, wanted[-1])
        return states

    def _wanted(self, nodes: Tensor | None) -> list[Tensor]:
        """The nodes whose states are read by the first layer, the second, and so on, and those that are asked for."""
        if nodes is None:
            return [torch.arange(self.blocks.csc.num_nodes)] * (len(self.network.layers) + 1)
        last = nodes.cpu().unique()
        key = last.numpy().tobytes()
        if key not in self._read:
            lists = [last]
            for _ in self.network.layers:
                lists.insert(0, self.blocks.read_by(lists[0]))
            self._read = {key: lists}
        return self._read[key]

    def _layer(
        self, number: int, states: Tensor, nodes: Tensor, held: Ordering | None, record: list[Ordering] | None
    ) -> Tensor:
        layer, weight = self.network.layers[number], next(self.network.parameters())
        sorts = layer if isinstance(layer, GOATConv) else None
        closed = sorts is not None and sorts.add_self_loops
        selects = sorts is not None and sorts.max_neighbors is not None and sorts.neighbor_selection == "random"
        device, kind = weight.device, weight.dtype
        degrees = KINDS[self.network.options.kinds[number]].whole == "degree"
        out: Tensor | None = None
        given: list[tuple[Tensor, ...]] = []
        for place, block in enumerate(self.blocks.of(nodes)):
            if place % self._part[1] != self._part[0]:
                continue
            degree = self.blocks.degree[block.n_id].to(device) if degrees else None
            here, ordering = self.network.run_layer(
                number,
                states[block.n_id].to(device, kind),
                block.edge_index.to(device),
                None if self.edge_attr is None else self.edge_attr[block.e_id].to(device, kind),
                ordering=None if held is None else self.blocks.take(held, block, closed).to(device),
                return_ordering=record is not None,
                part=Part(block.n_id.to(device), degree),
            )
            here = here[block.own.to(device)].cpu()
            out = here.new_zeros(states.size(0), here.size(1)) if out is None else out
            out[block.nodes] = here
            if ordering is not None:
                before = sum(int(sizes.sum()) for sizes, *_ in given) if selects else None
                given.append(self.blocks.give(ordering.to("cpu"), block, closed, before))
        if record is not None:
            sizes, *rest = zip(*given, strict=True)
            ptr = torch.cat([torch.zeros(1, dtype=torch.long), *sizes]).cumsum(0)
            record.append(Ordering(ptr, *(torch.cat(parts, dim=1) for parts in rest)))
        return self._join(self._nothing(number, states) if out is None else out)

    def _nothing(self, number: int, states: Tensor) -> Tensor:
        """What a process without blocks adds: the states of no node, in a layer's width."""
        device = next(self.network.parameters()).device
        alone = states[:1].to(device, next(self.network.parameters()).dtype)
        loop = torch.zeros(2, 1, dtype=torch.long, device=device)
        edge_attr = None if self.edge_attr is None else self.edge_attr[:1].to(alone)
        part = Part(torch.zeros(1, dtype=torch.long, device=device), torch.ones(1, dtype=torch.long, device=device))
        out, _ = self.network.run_layer(number, alone, loop, edge_attr, part=part)
        return out.cpu().new_zeros(states.size(0), out.size(1))

    def _rows(self, run: Callable[[Tensor], Tensor], states: Tensor, nodes: Tensor) -> Tensor:
        """A map of each node's own state."""
        weight, out = next(self.network.parameters()), None
        for part in nodes.split(_ROWS):
            here = run(states[part].to(weight)).cpu()
            out = here.new_zeros(states.size(0), here.size(1)) if out is None else out
            out[part] = here
        if out is None:
            raise ValueError("no node was asked for.")
        return out
