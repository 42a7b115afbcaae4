import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList
from torch.nn.utils.rnn import PackedSequence

from torch_goat.ops.places import Places


class PackedRNN(Module):
    r"""A custom sequence model per head that reads a :class:`~torch.nn.utils.rnn.PackedSequence`.

    Slower than the built-in RNNs: heads run one after the other, and the input of every edge is materialised.

    ``factory(in_channels, out_channels)`` is called once per head. The module that it returns maps a packed sequence of
    ``in_channels`` features to one row per sequence ``[N, out_channels]``, or returns ``(output, h_n)`` or
    ``(output, (h_n, c_n))`` as PyTorch's RNNs do: the result is then the final state of the last layer, all directions
    concatenated.
    """

    def __init__(
        self, factory: Callable[[int, int], Module], in_channels: int, out_channels: int, heads: int = 1
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.models = ModuleList()
        if isinstance(factory, Module):
            raise TypeError(
                f"rnn must be a factory of modules, got a {type(factory).__name__}; pass a function that "
                "builds one for each head."
            )
        for _ in range(heads):
            model = factory(in_channels, out_channels)
            if not isinstance(model, Module):
                raise TypeError(f"the rnn factory must return a module, got {type(model).__name__}.")
            self.models.append(model)

    def reset_parameters(self) -> None:
        for child in self.models.modules():
            if callable(reset := getattr(child, "reset_parameters", None)):
                reset()

    def forward(self, z: Tensor, places: Places, weight: Tensor | None) -> Tensor:
        """Reads every segment; shapes as in :class:`~torch_goat.nn.ragged_rnn.RaggedRNN`."""
        source, ptr = places.source, places.ptr
        length = ptr.diff()
        targets = torch.argsort(length, descending=True, stable=True)[: int((length > 0).sum())]  # [T']
        out = z.new_zeros(length.numel(), self.heads, self.out_channels)
        if targets.numel() == 0:
            return out
        # Step t of every sequence that is longer than t, longest first: the layout of a packed sequence.
        step = torch.arange(int(length.max()), device=ptr.device).view(-1, 1)
        running = step < length[targets]  # [steps, T']
        place = (ptr[targets] + step)[running]  # [E]
        sizes = running.sum(dim=1).cpu()
        rows = []
        for head, model in enumerate(self.models):
            token = z[source[head, place], head]  # [E, C]
            if weight is not None:
                token = weight[head, place].to(token.dtype).unsqueeze(-1) * token
            rows.append(self._final(model(PackedSequence(token, sizes)), targets.numel()))
        return out.index_copy(0, targets, torch.stack(rows, dim=1).to(out.dtype))

    def kernel(self, z: Tensor) -> str:
        """The kernel for the weighted mean: plain PyTorch."""
        return "torch"

    def _final(self, result: Any, num_sequences: int) -> Tensor:
        if isinstance(result, tuple):
            output, state = result
            state = state[0] if isinstance(state, tuple) else state  # [layers * D, N, H]
            directions = output.data.size(-1) // state.size(-1)  # its rows are [D * H]
            result = state[-directions:].transpose(0, 1).flatten(1)
        if result.shape != (num_sequences, self.out_channels):
            raise ValueError(
                f"the rnn module gave final states of shape {list(result.shape)}, expected "
                f"{[num_sequences, self.out_channels]}."
            )
        return result

    def as_torch(self, head: int = 0) -> Module:
        """A copy of one head's model."""
        return copy.deepcopy(self.models[head])
