import copy

import torch
from torch import Tensor
from torch.nn import Module

from torch_goat.nn.goat_conv import GOATConv
from torch_goat.nn.rnn_aggregation import RNNAggregation

_NODES = 24  # of a ring with a hub


def warm_up(module: Module) -> None:
    """Compiles the kernels of all GOAT layers of a module, forward and backward, on their device.

    The first call of a layer compiles its kernels, which takes some 10 to 30 seconds unless an earlier process cached
    them. Call this function before you measure time or serve requests. Copies of the layers run on a tiny graph, so
    weights, gradients and random numbers do not change.

    Args:
        module: A :class:`~torch_goat.nn.GOATConv`, an :class:`~torch_goat.nn.RNNAggregation`, or any module that
            contains such layers. A layer that infers sizes from its first call must have been called before.
    """
    layers = [part for part in module.modules() if isinstance(part, GOATConv | RNNAggregation)]
    if not layers:
        raise ValueError(f"warm_up needs a module with a GOATConv or an RNNAggregation, got {type(module).__name__}.")
    for layer in layers:
        if any(torch.nn.parameter.is_lazy(parameter) for parameter in layer.parameters()):
            raise ValueError(f"{layer} infers its sizes from its first call; call it once before warm_up.")
    for layer in layers:
        parameter = next(layer.parameters())
        devices = [parameter.device] if parameter.is_cuda else []
        with torch.random.fork_rng(devices), torch.inference_mode(False), torch.enable_grad():
            out = _run(copy.deepcopy(layer).train(), parameter)
            out.backward(torch.ones_like(out))


def _run(layer: GOATConv | RNNAggregation, like: Tensor) -> Tensor:
    node = torch.arange(_NODES, device=like.device)
    hub = torch.zeros_like(node)
    edge_index = torch.stack([torch.cat([node, node]), torch.cat([node.roll(1), hub])])

    def randn(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, device=like.device, dtype=like.dtype, requires_grad=True)

    if isinstance(layer, RNNAggregation):
        return layer(randn(edge_index.size(1), layer.in_channels), edge_index[1], dim_size=_NODES)
    edge_attr = None if layer.edge_dim is None else randn(edge_index.size(1), layer.edge_dim)
    if isinstance(layer.in_channels, tuple):
        source, target = layer.in_channels
        return layer((randn(_NODES, source), randn(_NODES, target)), edge_index, edge_attr)
    return layer(randn(_NODES, layer.in_channels), edge_index, edge_attr)
