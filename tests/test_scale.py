"""The cost model, the simulation of traffic, and the numbers of docs/scale.md."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import batches  # noqa: E402
import cost_model  # noqa: E402
import power_law  # noqa: E402
import traffic  # noqa: E402
from cost_model import Device, Graph, Layer, Machine, Workload  # noqa: E402


def test_the_formula_by_hand() -> None:
    """One head of width 2: H = 1, so that a row of gates is 16 bytes."""
    parts = cost_model.bytes_per_place(Layer(features=1, heads=1, width=2))
    assert parts["recurrence, forward"] == 2 * (16 + 8 + 8 + 4)  # gates; h and c; source; coefficient
    assert parts["recurrence, backward"] == 2 * (16 + 8 + 8 + 4 + 16)  # and the gradients of the gates
    # Key 8 + 4, sorted in 4 passes of 12 bytes in and out after 4 + 8 to begin with, then key, place, coefficient and
    # its gradient, two rows of both directions, and a row of every chunk of 32.
    assert parts["sums by source"] == 12 + 4 * 24 + 12 + 20 + 2 * 32 + 32 / 64
    assert cost_model.operations_per_place(Layer(1, 1, 2))["recurrence, forward"] == 2 * (8 + 60)


def test_time_is_the_floor_the_bytes_or_the_longest_run() -> None:
    layer, device = Layer(16, 8, 16), Device(floor=1.0, bandwidth=1e9, latency=1e-4)
    assert cost_model.seconds(layer, Graph(0, 0, 0), device) == 1.0
    recurrence, rest = cost_model.moved(layer, Graph(10, 100, 5))
    assert cost_model.seconds(layer, Graph(10, 100, 5), device) == pytest.approx(
        1 + (recurrence + rest) / 1e9, rel=1e-9
    )
    assert cost_model.seconds(layer, Graph(10, 100, 90), device) == pytest.approx(1 + rest / 1e9 + 0.009, rel=1e-9)


def test_the_device_is_found_again_in_what_it_would_measure() -> None:
    layer, device = Layer(16, 8, 16), Device(floor=2e-3, bandwidth=1e12, latency=1e-6)
    ms = 1e3 * cost_model.seconds(layer, Graph(10**5, 10**6, 10), device)
    degrees = [{"degree": degree, "hub_ms": 2 + degree / 1e3} for degree in (0, 1000)]
    found = cost_model.calibrated({"edges": [{"edges": 10**6, "ms": ms}], "degrees": degrees}, layer, 10)
    assert found.floor == pytest.approx(device.floor)
    assert found.bandwidth == pytest.approx(device.bandwidth)
    assert found.latency == pytest.approx(device.latency)


def test_the_model_foresees_layers_that_it_was_not_made_from() -> None:
    """Time and memory of GOATConv on the real graphs of layer.json, on the H200."""
    rows = json.loads((cost_model.RESULTS / "2026-11-15-h200" / "layer.json").read_text())["rows"]
    measured = {row["graph"]: row for row in rows if row["layer"] == "GOATConv triton"}
    graphs = {"Computers": (767, Graph(13752, 491722, 2992)), "ogbn-arxiv": (128, Graph(169343, 2315598, 13161))}
    for name, (features, graph) in graphs.items():
        layer = Layer(features, heads=8, width=16)
        assert 1e3 * cost_model.seconds(layer, graph, cost_model.h200()) == pytest.approx(
            measured[name]["ms"], rel=0.35
        )
        assert cost_model.memory(layer, graph) / 1e6 == pytest.approx(measured[name]["mb"], rel=0.1)


def test_what_a_cluster_needs_by_hand() -> None:
    workload = Workload(nodes=100, edges=900, features=10, feature_bytes=4, seeds=64, batch_size=4)
    machine = Machine(gpus=2, memory=4000, network=1000)
    found = cost_model.needs(workload, machine, {"nodes_per_batch": 20.0, "ms_per_step": 500.0}, remote=0.5)
    assert (found.structure, found.features) == (8000, 4000)
    assert found.machines == 3
    assert found.batch_bytes == 800
    assert found.inflow == 2 * 0.5 * 800 / 0.5  # two GPUs, two steps a second each, half of the rows
    assert found.slowed == pytest.approx(1.6)
    assert found.epoch == pytest.approx(64 / 4 / 6 * 0.5 * 1.6)


def test_power_law_graphs_have_their_edges_and_hubs() -> None:
    ptr, step = power_law.pointers(1000, 20_000)
    degree = np.diff(ptr)
    assert ptr[-1] == 20_000
    hubs = np.arange(250) * step % 1000  # the first quarter of the ranks
    assert len(set(hubs)) == 250
    assert degree[hubs].sum() == round(20_000 * 0.25**0.4)
    assert degree.max() == degree[0] == round(20_000 * 0.001**0.4)


def test_a_generated_graph_is_the_same_again_and_its_sources_are_hubs(tmp_path: Path) -> None:
    one, two = (power_law.generate(tmp_path / name, 1000, 20_000, 4) for name in ("one", "two"))
    assert np.array_equal(one.indices, two.indices)
    often = np.bincount(one.indices, minlength=1000)
    assert np.corrcoef(often, np.diff(one.indptr))[0, 1] > 0.98
    x, y = np.load(tmp_path / "one" / "x.npy"), np.load(tmp_path / "one" / "y.npy")
    assert set(y.tolist()) == set(range(power_law.CLASSES))
    assert bool((x[np.arange(1000), y % 4] >= 0.5).all())


def test_remote_rows_by_hand() -> None:
    owner, copied = np.array([0, 1, 1, 0, 2]), np.array([False, False, True, False, False])
    assert traffic.remote(np.array([0, 1, 2, 3, 4]), 0, owner, copied) == 2  # 1 and 4; 2 is copied
    assert traffic.remote(np.array([0, 3]), 1, owner, copied) == 2
    edge_index = np.array([[4, 4, 1, 4, 1, 0], [0, 1, 2, 3, 4, 0]])
    assert traffic.copies(edge_index, 5, 0.4).tolist() == [False, True, False, False, True]


def test_communities_hold_the_share_of_edges_that_they_should() -> None:
    edge_index = traffic.edges(0.9, 10_000, 100_000)
    inside = np.mean(edge_index[0] // traffic.COMMUNITY == edge_index[1] // traffic.COMMUNITY)
    assert inside == pytest.approx(0.9 + 0.1 * 0.1, abs=0.01)  # a tenth of the others by chance
    assert bool((np.diff(edge_index[1]) >= 0).all())


def test_the_share_of_time_that_intervals_cover() -> None:
    assert batches.covered([(0, 1), (3, 4)]) == 0.5
    assert batches.covered([(2, 3), (0, 2), (1, 2)]) == 1.0
