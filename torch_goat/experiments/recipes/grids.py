"""The grids of the paper's appendix, as settings of a network."""

from typing import Any, Final, Literal

from torch_goat.experiments.models import MODELS
from torch_goat.settings import SettingsError, nearest

WIDTHS: Final = (4, 8, 16, 32, 64)
HEADS: Final = (1, 4, 8)
WITH_HEADS: Final = ("gat", "gatv2", "goat", "goat-paper")


def paper_grid(model: str, task: Literal["classification", "regression"]) -> dict[str, tuple[Any, ...]]:
    """The values that the paper's appendix searches, by key of the ``[model]`` table.

    The paper names widths of the linear encoder, of the first and of the second layer for GCN and GraphSAGE; numbers of
    heads and widths of the two layers for GAT and GOAT. In classification the second layer gives the classes, so that
    its width is not searched; there the source of the paper adds the pooling of heads. PNA combines all the aggregators
    and scalers of its list. Models that the paper does not name (GATv2, Janossy pooling) have the grid of their kin.

    Args:
        model: A key of :data:`torch_goat.experiments.models.MODELS`.
        task: What is predicted, as :class:`torch_goat.data.datasets.Dataset` says it.

    Returns:
        The values of every key. All combinations of them are the grid; a key with one value is not searched.
    """
    if model not in MODELS:
        raise SettingsError(f"there is no model {model!r}{nearest(model, MODELS)}")
    grid: dict[str, tuple[Any, ...]]
    if model in WITH_HEADS:
        grid = {"heads": HEADS, "hidden_channels": WIDTHS}
        grid |= {"last_channels": WIDTHS} if task == "regression" else {"head_pooling": ("cat", "sum")}
    else:
        grid = {"input_channels": WIDTHS, "hidden_channels": WIDTHS}
        grid |= {"last_channels": WIDTHS[:-1]} if task == "regression" else {}
    if model == "pna":
        grid["aggregators"] = (("mean", "min", "max", "std"),)
        grid["scalers"] = (("identity", "amplification", "attenuation", "linear"),)
    return grid
