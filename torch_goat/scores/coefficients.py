from torch import Tensor
from torch_geometric.utils import softmax


def coefficients(score: Tensor, ptr: Tensor) -> Tensor:
    r"""Softmax of scores ``[K, E]`` within each run of ``ptr`` ``[T + 1]``: the coefficients of Eq. 3.

    A run is summed in the order in which it stands, so sorted scores give a result that does not depend on the order
    of the edges, to the last bit.
    """
    if score.size(1) == 0:
        return score
    return softmax(score.t(), ptr=ptr).t()
