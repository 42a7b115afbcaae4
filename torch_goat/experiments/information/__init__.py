"""What a neighbourhood tells of a node, in bits: unique, redundant and synergistic information."""

from torch_goat.experiments.information.captured import captured_information, predicted_classes
from torch_goat.experiments.information.decompose import Decomposition, decompose
from torch_goat.experiments.information.discretize import cluster, quantile_bins
from torch_goat.experiments.information.estimate import Estimate, Quantity, estimate
from torch_goat.experiments.information.samples import SmallSampleWarning, supported_bins

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
