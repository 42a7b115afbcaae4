from pathlib import Path

import pytest
import torch

from tests.experiments.models.cases import options
from torch_goat.experiments.models import Network, export_program

# PyTorch's own tracing uses what it has deprecated itself.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@pytest.mark.parametrize(
    ("name", "edge_dim", "values"),
    [("goat", 0, {"heads": 2}), ("goat", 3, {"mean_residual": True}), ("gat", 3, {}), ("sage-mean", 0, {})],
)
def test_a_saved_program_computes_what_the_network_does_on_any_graph(
    tmp_path: Path, name: str, edge_dim: int, values: dict
) -> None:
    network = Network(options(name, **values), 5, 3, edge_dim=edge_dim)
    torch.export.save(export_program(network), tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    for nodes, edges in ((7, 12), (30, 3)):
        inputs = [torch.randn(nodes, 5), torch.randint(nodes, (2, edges))]
        inputs += [torch.randn(edges, edge_dim)] if edge_dim else []
        torch.testing.assert_close(program(*inputs), network(*inputs))


@pytest.mark.parametrize(
    "values", [{"name": "janossy"}, {"backend": "reference"}, {"max_neighbors": 5}, {"add_self_loops": False}]
)
def test_what_cannot_be_exported_says_so(values: dict) -> None:
    with pytest.raises(ValueError, match="cannot be exported"):
        export_program(Network(options(**{"name": "goat"} | values), 5, 3))
