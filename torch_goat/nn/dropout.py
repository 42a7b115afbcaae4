import torch
import torch.nn.functional as F
from torch import Tensor

LARGE = 1 << 20  # elements; smaller inputs do not gain


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """``torch.nn.functional.dropout``, several times faster for large inputs on a CPU.

    PyTorch draws a Bernoulli variable per element there, which is slower than uniform numbers. For features that are
    mostly zero, such as word counts, numbers are drawn for the other elements only. The distribution is the same, the
    random numbers are not.
    """
    plain = x.device.type == "cpu" and x.layout == torch.strided and x.is_contiguous()
    if not (training and 0 < p < 1 and plain and x.numel() >= LARGE) or torch.compiler.is_compiling():
        return F.dropout(x, p, training)
    sample = x.view(-1)[::997]
    if x.requires_grad or 8 * int(sample.count_nonzero()) > sample.numel():  # more than one in eight is not zero
        return x * _kept(x, p)
    place = x.view(-1).nonzero().view(-1)  # of the elements that are not zero
    value = x.view(-1)[place]
    out = torch.zeros_like(x)
    out.view(-1)[place] = value * _kept(value, p)
    return out


def _kept(x: Tensor, p: float) -> Tensor:
    """The factors of elements: 0, or ``1 / (1 - p)``."""
    return torch.rand(x.shape, device=x.device).ge_(p).to(x.dtype).mul_(1 / (1 - p))
