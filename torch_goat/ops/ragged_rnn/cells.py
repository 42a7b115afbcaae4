"""What the three recurrent cells have in common, and what PyTorch calls them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

# Kind -> how many gates of `hidden` rows stand in one weight matrix, in PyTorch's order.
GATES = {"lstm": 4, "gru": 3, "rnn": 1}  # i f g o | r z n | h
TORCH_MODULES: dict[str, Callable[..., torch.nn.RNNBase]] = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "rnn": torch.nn.RNN,
}


class RNNWeights(NamedTuple):
    """The weights of K heads and D directions, each laid out as one layer of PyTorch's RNN is."""

    weight_ih: Tensor  # [K, D, G * H, C]
    weight_hh: Tensor  # [K, D, G * H, H]
    bias_ih: Tensor  # [K, D, G * H]
    bias_hh: Tensor  # [K, D, G * H]

    def of_torch(self, head: int) -> dict[str, Tensor]:
        """One head's weights under the names of ``torch.nn.LSTM`` and its siblings."""
        return {
            f"{name}_l0{suffix}": value[head, direction]
            for name, value in self._asdict().items()
            for direction, suffix in enumerate(["", "_reverse"][: self.weight_ih.size(1)])
        }
