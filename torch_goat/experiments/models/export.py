import torch
from torch.export import Dim, ExportedProgram

from torch_goat.experiments.models.network import Network
from torch_goat.experiments.models.options import ModelOptions


def export_program(network: Network) -> ExportedProgram:
    """Exports a network with :mod:`torch.export`, for graphs of any size; ``torch.export.save`` writes it to a file.

    The program takes ``(x, edge_index)``, or ``(x, edge_index, edge_attr)`` if the network reads edge features, on the
    network's device. Its RNNs are custom operators: a process that loads it must import ``torch_goat.nn`` first. They
    run on the network's backend; ``"torch"`` runs everywhere.

    Args:
        network: The network, which is put into evaluation mode. Layers that draw random orders (sage-lstm, janossy),
            the backend ``"reference"`` (a loop over the nodes), a selection of neighbours (``max_neighbors``), a given
            order and GOAT layers without self loops cannot be exported, since their shapes depend on the data.
    """
    for key in ("max_neighbors", "given_order", "add_self_loops", "separate_self"):
        if (value := getattr(network.options, key)) != getattr(ModelOptions, key):
            raise ValueError(f"a network with {key}={value} cannot be exported; leave {key} at its default.")
    if set(network.options.kinds) & {"sage-lstm", "janossy"} or network.options.backend == "reference":
        raise ValueError(
            f"a network of {' -> '.join(network.options.kinds)} with the backend {network.options.backend!r} cannot be "
            "exported; it draws orders at random or loops over nodes."
        )
    parameter = next(network.parameters())
    nodes, edges = Dim("nodes", min=2), Dim("edges", min=2)
    ring = torch.arange(8, device=parameter.device)
    inputs = [parameter.new_zeros(8, network.in_channels), torch.stack([ring, ring.roll(1)])]
    shapes: list[dict] = [{0: nodes}, {1: edges}]
    if network.edge_dim:
        inputs.append(parameter.new_zeros(8, network.edge_dim))
        shapes.append({0: edges})
    return torch.export.export(network.eval(), tuple(inputs), dynamic_shapes=tuple(shapes), strict=False)
