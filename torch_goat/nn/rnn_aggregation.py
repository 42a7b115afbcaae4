from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.aggr import Aggregation

from torch_goat.nn.inputs import check_exporter, refuse_scripting
from torch_goat.nn.ragged_rnn import LazyRaggedRNN, RaggedRNN
from torch_goat.ops.checks import check_choice, check_count, check_dtype, check_ptr, check_range
from torch_goat.ops.places import Places
from torch_goat.ops.ragged_rnn.interface import GATES


class RNNAggregation(Aggregation):
    r"""Aggregates each group with an RNN that reads its elements in the order in which they are given.

    A drop-in replacement for PyG's ``LSTMAggregation`` without padding: the result of a group does not depend on the
    size of other groups, and ``index`` need not be sorted. A group without elements gives zeros.

    Args:
        in_channels: The size of one element, or ``-1`` to infer it from the first call.
        out_channels: The size of one result, both directions together.
        rnn: ``"lstm"``, ``"gru"``, ``"rnn"``, ``"mingru"`` or ``"minlstm"``.
        bidirectional: Whether to read groups in both directions. Each direction has half of ``out_channels``, rounded
            up; if it is odd, the last column is dropped.
        backend: A name of :func:`torch_goat.backends`, or ``"auto"``.

    Attributes:
        checks: Whether input data is checked; ``None`` uses the default set by :func:`torch_goat.set_checks`.

    Shapes:
        - **input:** elements :math:`(|\mathcal{E}|, F_{in})`, index :math:`(|\mathcal{E}|)` or ptr
        - **output:** one row per group :math:`(|\mathcal{V}|, F_{out})`
    """

    checks: bool | None = None
    __prepare_scriptable__ = refuse_scripting

    def __init__(
        self, in_channels: int, out_channels: int, rnn: str = "lstm", bidirectional: bool = False, backend: str = "auto"
    ) -> None:
        super().__init__()
        check_choice("rnn", rnn, *GATES)
        self.out_channels = out_channels
        options: dict[str, Any] = {"bidirectional": bidirectional, "backend": backend}
        if in_channels == -1:
            self.rnn: RaggedRNN = LazyRaggedRNN(rnn, out_channels, **options)
        else:
            self.rnn = RaggedRNN(rnn, check_count("in_channels", in_channels, 0, " or -1"), out_channels, **options)

    @property
    def in_channels(self) -> int:
        """The size of one element, or -1 before the first call of a lazy aggregation."""
        return self.rnn.in_channels

    def reset_parameters(self) -> None:
        self.rnn.reset_parameters()

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Tensor:
        """Aggregates each group. ``max_num_elements``, the padding width in PyG, is ignored."""
        self._check(x)
        if dim not in (-2, 0):
            raise ValueError(f"RNNAggregation aggregates over dimension 0 (or -2), got dim={dim}.")
        if ptr is not None:
            ptr = check_ptr(ptr, x.size(0), self.checks)
            source = torch.arange(x.size(0), device=x.device)
        else:
            assert index is not None  # Aggregation.__call__ sets both
            assert dim_size is not None
            if index.shape != x.shape[:1]:
                raise ValueError(
                    f"index must have one entry for each of the {x.size(0)} elements, got shape {list(index.shape)}."
                )
            index, source = check_range("index", index, dim_size, self.checks).sort(stable=True)
            ptr = torch.searchsorted(index.long(), torch.arange(dim_size + 1, device=x.device))
        return self._read(x, source, ptr)

    def read(self, x: Tensor, source: Tensor, ptr: Tensor) -> Tensor:
        """Aggregates rows that can be in several groups. Each row is projected only once.

        Args:
            x: The rows ``[S, in_channels]``.
            source: The row at each place of the groups ``[E]``.
            ptr: Group ``g`` owns the places ``ptr[g]`` to ``ptr[g + 1]`` ``[G + 1]``.
        """
        self._check(x)
        if source.dim() != 1:
            raise ValueError(f"source must be a vector, got shape {list(source.shape)}.")
        source = check_range("source", source, x.size(0), self.checks)
        ptr = check_ptr(ptr, source.numel(), self.checks)
        return self._read(x, source, ptr)

    def _check(self, x: Tensor) -> None:
        check_exporter()
        width = self.in_channels
        if x.dim() != 2 or (width != -1 and width != x.size(1)):  # not `in`: torch.compile cannot trace it
            wanted = width if width >= 0 else "in_channels"
            raise ValueError(f"x must have shape [elements, {wanted}], got {list(x.shape)}.")
        check_dtype("x", x, self.rnn.weight_ih.dtype)

    def _read(self, x: Tensor, source: Tensor, ptr: Tensor) -> Tensor:
        places = Places.from_ptr(source.long().unsqueeze(0), ptr.long())  # kernels are compiled for int64
        return self.rnn(x.unsqueeze(1), places, None).squeeze(1)

    def as_torch(self) -> torch.nn.RNNBase:
        """An equivalent ``torch.nn.LSTM``, ``GRU`` or ``RNN`` with a copy of the weights."""
        return self.rnn.as_torch()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, rnn={self.rnn.kind!r})"
