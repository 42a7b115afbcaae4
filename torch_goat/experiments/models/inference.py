from collections.abc import Callable, Sequence
from itertools import islice

import torch
from torch import Tensor

from torch_goat.data.loader.blocks import Block, Blocks
from torch_goat.experiments.models import Network
from torch_goat.experiments.models.kinds import KINDS
from torch_goat.experiments.models.layers import Part
from torch_goat.nn import GOATConv
from torch_goat.nn.inference import run_in_batches
from torch_goat.nn.ordering import Ordering

_ROWS = 1 << 16  # nodes that a linear map reads at a time


class Inference:
    """Computes the output of a network layer by layer over blocks of nodes, exactly and in little memory.

    The output equals that of the network on the whole graph up to rounding, for every kind of layer: blocks provide the
    degrees and node numbers of the whole graph to the layers that need them.

    Args:
        network: The network, in evaluation mode.
        blocks: The graph.
        x: The features of all nodes ``[N, in_channels]``, in memory or in a file.
        edge_attr: The features of all edges ``[E, edge_dim]``, if the network reads them.
        order_by: The numbers of all edges ``[E]`` in whose order the network reads them, if it has ``given_order``.
        part: The number of this process and the number of processes that share the work.
        join: Sums a tensor over these processes.
    """

    def __init__(
        self,
        network: Network,
        blocks: Blocks,
        x: Tensor,
        edge_attr: Tensor | None = None,
        order_by: Tensor | None = None,
        *,
        part: tuple[int, int] = (0, 1),
        join: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        nodes, edges = blocks.csc.num_nodes, blocks.csc.source.numel()
        if x.shape != (nodes, network.in_channels):
            raise ValueError(f"x must have shape [{nodes}, {network.in_channels}], got {list(x.shape)}.")
        expected = [edges, network.edge_dim] if network.edge_dim else None
        shape = None if edge_attr is None else list(edge_attr.shape)
        if shape != expected:
            raise ValueError(f"edge_attr has shape {shape}, but the network reads {expected}.")
        if (None if order_by is None else order_by.shape) != ((edges,) if network.options.given_order else None):
            raise ValueError(f"order_by must be given for the {edges} edges exactly if the network has given_order.")
        self.network, self.blocks, self.x, self.edge_attr, self.order_by = network, blocks, x, edge_attr, order_by
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
        """Computes the output ``[N, out_channels]``, on the CPU.

        Args:
            nodes: The nodes whose output is needed; the rows of others are undefined. All nodes if ``None``.
            orderings: An ordering of the whole graph to replay per GOAT layer, on the CPU.
            record: A list to append the orderings of the GOAT layers to; needs all nodes and a single process.
        """
        if self.network.training:
            raise ValueError("inference is for evaluation; call network.eval() first.")
        if record is not None and (nodes is not None or self._part[1] > 1):
            raise ValueError("orderings can only be recorded for all nodes and by one process.")
        sorting = self.network.num_orderings
        if orderings is not None and len(orderings) != sorting:
            raise ValueError(f"orderings has {len(orderings)} entries, but there are {sorting} GOAT layers.")
        needed = self._needed(nodes)
        states = self._rows(self.network.encode, self.x, needed[0]) if self.network.encodes else self.x
        replay = iter([None] * sorting if orderings is None else orderings)
        for number, layer in enumerate(self.network.layers):
            sorts = isinstance(layer, GOATConv)
            held = next(replay) if sorts else None
            states = self._layer(number, states, needed[number + 1], held, record if sorts else None)
        return states if self.network.output is None else self._rows(self.network.decode, states, needed[-1])

    def _needed(self, nodes: Tensor | None) -> list[Tensor]:
        """The nodes whose states are read by the first layer, the second, and so on, and those of the output."""
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
        closed = isinstance(layer, GOATConv) and layer.add_self_loops
        selects = isinstance(layer, GOATConv) and layer.max_neighbors and layer.neighbor_selection == "random"
        degrees = KINDS[self.network.options.kinds[number]].whole == "degree"
        recorded: list[tuple[Tensor, ...]] = []

        def run(block: Block) -> tuple[Tensor, Tensor]:
            n_id = block.n_id.to(weight.device)
            out, ordering = self.network.run_layer(
                number,
                states[block.n_id].to(weight),
                block.edge_index.to(weight.device),
                None if self.edge_attr is None else self.edge_attr[block.e_id].to(weight),
                order_by=None if self.order_by is None else self.order_by[block.e_id].to(weight.device),
                ordering=None if held is None else self.blocks.take(held, block, closed).to(weight.device),
                return_ordering=record is not None,
                part=Part(n_id, self.blocks.degree[block.n_id].to(weight.device) if degrees else None),
            )
            if ordering is not None:
                before = sum(int(sizes.sum()) for sizes, *_ in recorded) if selects else None
                recorded.append(self.blocks.give(ordering.to("cpu"), block, closed, before))
            return block.nodes, out[block.own.to(weight.device)]

        mine = islice(self.blocks.of(nodes), self._part[0], None, self._part[1])
        out, _ = run_in_batches(run, mine, states.size(0), "cpu")
        if out is None:  # a process without blocks adds zeros, in the width of the layer's output
            rows = run(next(self.blocks.of(nodes)))[1]
            out = rows.cpu().new_zeros(states.size(0), rows.size(1))
        if record is not None:
            sizes, *rest = zip(*recorded, strict=True)
            ptr = torch.cat([torch.zeros(1, dtype=torch.long), *sizes]).cumsum(0)
            record.append(Ordering.unchecked(ptr, *(torch.cat(parts, dim=1) for parts in rest)))
        return self._join(out)

    def _rows(self, run: Callable[[Tensor], Tensor], states: Tensor, nodes: Tensor) -> Tensor:
        """Applies a map of each node's own state."""
        weight = next(self.network.parameters())
        out, _ = run_in_batches(
            lambda part: (part, run(states[part].to(weight))), nodes.split(_ROWS), states.size(0), "cpu"
        )
        if out is None:
            raise ValueError("nodes is empty; name at least one node.")
        return out
