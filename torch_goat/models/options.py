from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ModelOptions:
    """The network of an experiment: which layers, how wide, and what stands between them."""

    name: str = "goat"
    input_channels: int = 0
    hidden_channels: int = 8
    num_layers: int = 2
    last_channels: int = 0
    last: str = ""
    heads: int = 1
    head_pooling: Literal["cat", "sum", "mean"] = "cat"
    activation: Literal["elu", "relu"] = "elu"
    dropout: float = 0.5
    attention_dropout: float = 0.0
    norm: Literal["none", "batch", "layer"] = "none"
    residual: bool = False
    rnn: Literal["lstm", "gru", "rnn"] = "lstm"
    attention: Literal["gat", "gatv2"] = "gat"
    bidirectional: bool = True
    max_neighbors: int = 0
    neighbor_selection: Literal["random", "top"] = "random"
    aggregators: tuple[str, ...] = ("mean", "min", "max", "std")
    scalers: tuple[str, ...] = ("identity", "amplification", "attenuation")
    permutation_lengths: tuple[int, ...] = (5,)
    permutations: int = 20
    backend: str = "auto"
