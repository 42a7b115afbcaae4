"""Unique, redundant and synergistic information of neighbourhoods about labels, in bits."""

from torch_goat.experiments.information.captured import captured_information, predicted_classes
from torch_goat.experiments.information.decompose import Decomposition, decompose
from torch_goat.experiments.information.discretize import SmallSampleWarning, cluster, quantile_bins, supported_bins
from torch_goat.experiments.information.estimate import Estimate, Quantity, estimate

__all__ = [
    "Decomposition",
    "Estimate",
    "Quantity",
    "SmallSampleWarning",
    "captured_information",
    "cluster",
    "decompose",
    "estimate",
    "predicted_classes",
    "quantile_bins",
    "supported_bins",
]
