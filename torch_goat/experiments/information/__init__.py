"""Unique, redundant and synergistic information of neighbourhoods about labels, in bits."""

from torch_goat.experiments.information.captured import captured_information as captured_information
from torch_goat.experiments.information.captured import predicted_classes as predicted_classes
from torch_goat.experiments.information.decompose import Decomposition as Decomposition
from torch_goat.experiments.information.decompose import decompose as decompose
from torch_goat.experiments.information.discretize import SmallSampleWarning as SmallSampleWarning
from torch_goat.experiments.information.discretize import cluster as cluster
from torch_goat.experiments.information.discretize import quantile_bins as quantile_bins
from torch_goat.experiments.information.discretize import supported_bins as supported_bins
from torch_goat.experiments.information.estimate import Estimate as Estimate
from torch_goat.experiments.information.estimate import Quantity as Quantity
from torch_goat.experiments.information.estimate import estimate as estimate
from torch_goat.experiments.information.pooled import PooledColumn as PooledColumn
from torch_goat.experiments.information.pooled import pooled_columns as pooled_columns
