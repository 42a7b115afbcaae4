"""Networks to compare GOAT with that PyG does not have."""

from torch_goat.models.sage_lstm import GraphSAGELSTM

__all__ = ["GraphSAGELSTM"]
