"""The cost model, the simulation of traffic, and the numbers of docs/scale.md."""

import json
from pathlib import Path

import batches
import cost_model
import numpy as np
import power_law
import pytest
import traffic
from cost_model import Device, Graph, Layer, Machine, Workload

ROOT = Path(__file__).parent.parent


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


PAGE = " ".join((ROOT / "docs/scale.md").read_text().split())


def results(name: str) -> dict:
    return json.loads((cost_model.RESULTS / name).read_text())


def growth_rows() -> list[tuple[dict, Layer, Graph]]:
    growth = results("2026-11-15-h200-scale/scale-growth.json")
    return [
        (
            row,
            Layer(growth["features"], row["heads"], growth["width"]),
            Graph(row["nodes"], row["edges"], row["largest"]),
        )
        for row in growth["rows"]
    ]


@pytest.mark.parametrize("fanout", [1, 5, 100])
def test_the_neighbours_that_are_drawn_are_those_of_a_generated_graph(fanout: int) -> None:
    degree = np.diff(power_law.pointers(100_000, 1_000_000)[0])
    assert cost_model.mean_drawn(10, fanout) == pytest.approx(np.minimum(degree, fanout).mean(), rel=0.01)


def test_a_batch_by_hand() -> None:
    """10 seeds, 2 neighbours each as good as always: the second layer reads their edges, the first all."""
    minibatch = {"batch_size": 10, "fanout": [100, 15], "num_nodes": 1, "num_edges": 2, "num_features": 7}
    row = {"network": "8 heads of 64", "nodes_per_batch": 60.0, "edges_per_batch": 50.0}
    (first, read), (second, last) = cost_model.batch_layers(minibatch, row)
    assert (first, second) == (Layer(7, 8, 64), Layer(512, 1, 64))
    assert (read.nodes, read.tokens) == (60, 50 + 30)  # all edges, and a self loop of seeds and their neighbours
    assert (last.nodes, last.tokens) == (30, 20 + 10)


def test_the_tables_of_the_page_are_those_of_the_model() -> None:
    device, minibatch = cost_model.h200(), results("2026-11-15-h200-scale/scale-minibatch.json")
    shares = traffic.shares(results("2026-11-15-traffic/traffic.json"))
    page = (ROOT / "docs/scale.md").read_text()
    assert cost_model.table_of_parts(Layer(features=16, heads=8, width=16)) in page
    assert cost_model.table_of_growth(results("2026-11-15-h200-scale/scale-growth.json"), device) in page
    assert cost_model.table_of_batches(minibatch, device) in page
    assert cost_model.table_of_needs(cost_model.best_batch(minibatch), shares) in page


def test_the_page_says_how_far_the_model_is_off() -> None:
    device = cost_model.h200()
    step = f"{1e6 * device.latency:.2f} µs"
    assert f"{1e3 * device.floor:.1f} ms, {device.bandwidth / 1e12:.2f} TB/s, and {step} a step" in PAGE
    assert f"on a star with eight heads, {step}" in PAGE
    times, sizes, surplus, steps, nothing_hidden, per_edge = [], [], [], [], [], {}
    for row, layer, graph in growth_rows():
        times.append(row["ms"] / 1e3 / cost_model.seconds(layer, graph, device) - 1)
        sizes.append(row["gigabytes"] * 1e9 / cost_model.memory(layer, graph) - 1)
        surplus.append((cost_model.memory(layer, graph) - row["gigabytes"] * 1e9) / graph.tokens)
        recurrence, rest = cost_model.moved(layer, graph)
        besides = device.floor + rest / device.bandwidth
        per_edge[layer.heads] = row["gigabytes"] * 1e9 / row["edges"]
        if layer.heads == 1:
            steps.append((row["ms"] / 1e3 - besides) / graph.largest)
        else:
            nothing_hidden.append(1e3 * (besides + recurrence / device.bandwidth + graph.largest * device.latency))
            assert times[-1] > 0
    furthest = [100 * max(map(abs, off)) for off in (times, sizes)]
    assert f"off by at most {furthest[0]:.0f} % in time and {furthest[1]:.0f} % in memory" in PAGE
    assert f"would follow from {1e6 * min(steps):.2f} to {1e6 * max(steps):.2f} µs" in PAGE
    one, two, three = nothing_hidden
    assert f"it would say {one:.1f}, {two:.1f} and {three:.0f} ms" in PAGE
    assert f"by {min(surplus):.0f} to {max(surplus):.0f} bytes a token" in PAGE
    assert f"{per_edge[8] / 1e3:.1f} kB with eight heads and {per_edge[1]:.0f} bytes with one" in PAGE
    assert f"{141e9 / per_edge[8] / 1e7:.1f} x 10^7 edges or {141e9 / per_edge[1] / 1e8:.1f} x 10^8" in PAGE


def test_the_table_of_full_batches_is_that_of_the_results() -> None:
    rows = results("2026-11-15-h200-scale/scale-arxiv.json")["rows"]
    lines = [
        f"| {row['network']} | {row['width']} | {row['ms']:.1f} | {row['ratio']:.2f} | "
        f"{'-' if row['ratio'] == 1 else 'met' if row['ratio'] <= 2.5 else '**missed**'} | {row['gigabytes']:.1f} |"
        for row in rows
    ]
    header = cost_model.table(["network", "width", "step (ms)", "x GATConv", "at most 2.5", "memory (GB)"], [])
    assert "\n".join([header, *lines]) in (ROOT / "docs/scale.md").read_text()
    wide, narrow = (
        {row["network"]: row for row in rows if row["width"] == cost_model.WIDTHS[width]} for width in (64, 8)
    )
    more = [found["GOATConv, GATConv"]["ms"] - found["GOATConv.paper, GATConv"]["ms"] for found in (narrow, wide)]
    assert f"It costs {more[0]:.1f} ms of a step at hidden 64 and {more[1]:.1f} ms with eight heads of 64" in PAGE
    assert all(row["gigabytes"] <= 8 for row in narrow.values())  # "met by all"
    sizes = [row["gigabytes"] for name, row in narrow.items() if "GOAT" in name]
    assert f"with {min(sizes):.1f} to {max(sizes):.1f} GB" in PAGE
    assert f"they take {wide['GOATConv, GOATConv']['gigabytes']:.0f} GB, and GATConv" in PAGE
    ratio = {name: f"{row['ratio']:.2f}" for name, row in narrow.items()}
    assert f"takes {ratio['GOATConv, GATConv']} times as long, and the paper's layer with one " in PAGE
    assert f"one {ratio['GOATConv.paper, GATConv']} times. Two of the paper's layers take " in PAGE
    assert f"take {ratio['GOATConv.paper, GOATConv.paper']} times as long, two default ones " in PAGE
    assert f"default ones {ratio['GOATConv, GOATConv']} times: missed" in PAGE
    card = (ROOT / "docs/model-card.md").read_text()
    assert f"takes {ratio['GOATConv, GATConv']} times as long as one with GATConv" in card
    times = narrow["GOATConv, GATConv"]["gigabytes"] / narrow["GATConv, GATConv"]["gigabytes"]
    assert f"and {times:.1f} times its memory" in card


def test_the_page_says_how_busy_the_gpu_was() -> None:
    minibatch = results("2026-11-15-h200-scale/scale-minibatch.json")
    rows = minibatch["rows"]
    shares = ("waited_for_loader", "busy_by_events", "busy_by_replay", "busy_by_profiler")
    for row in rows:
        cells = [f"{row['ms_per_step']:.1f}", *(f"{100 * row[share]:.1f} %" for share in shares)]
        assert f"| {row['network']} | {row['workers']} | {' | '.join(cells)} |" in PAGE
    assert "left_out" in minibatch  # "The fourth setting ... was not measured"
    processes, threads, wide = rows
    events, replay, kernels = (
        [f"{100 * row[share]:.1f} %" for row in (processes, threads, wide)] for share in shares[1:]
    )
    assert f"At least {min(events)}: met" in PAGE
    assert min(row["busy_by_events"] for row in rows) >= 0.7
    assert f"{replay[1]} with threads: met. {replay[0]} with processes: missed" in PAGE
    assert processes["busy_by_replay"] < 0.7 <= threads["busy_by_replay"]
    assert f"{kernels[2]} by the wide network: met. {kernels[0]} and {kernels[1]} by the narrow one: **missed**" in PAGE
    assert max(row["busy_by_profiler"] for row in (processes, threads)) < 0.7 <= wide["busy_by_profiler"]
    assert f"({threads['replay_ms_per_step']:.1f} of {threads['ms_per_step']:.1f} ms)" in PAGE
    device = cost_model.h200()
    models = [
        1e3 * sum(cost_model.seconds(*pair, device) for pair in cost_model.batch_layers(minibatch, row)) for row in rows
    ]
    low = [row["busy_by_profiler"] * row["ms_per_step"] / model for row, model in zip(rows, models, strict=True)]
    assert f"floor of two layers is {2e3 * device.floor:.1f} of its {models[0]:.1f} ms" in PAGE
    assert f"a factor of {low[1]:.1f} to {low[0]:.1f} for the kernels of the narrow network and of {low[2]:.1f}" in PAGE
    reserved = wide["gpu_reserved_gigabytes"]
    assert f"from {reserved[0]:.1f} to {reserved[-1]:.1f} GB, the last time" in PAGE
    assert f"{threads['gpu_gigabytes'][0]:.2f} to {threads['gpu_gigabytes'][-1]:.2f} GB" in PAGE


def test_the_page_says_what_traffic_and_a_cluster_come_to() -> None:
    shares = {
        (row["partition"], row["local"], row["copied"]): f"{100 * row['remote']:.0f} %"
        for row in results("2026-11-15-traffic/traffic.json")["rows"]
    }
    assert f"By hash {shares['hash', 0.5, 0.0]} of the rows" in PAGE
    assert f"By locality it is {shares['locality', 0.5, 0.0]}" in PAGE
    assert f"and {shares['locality', 0.9, 0.0]} where nine tenths do" in PAGE
    assert f"({shares['hash', 0.5, 0.01]} by hash), and of 10 % three tenths ({shares['hash', 0.5, 0.1]})" in PAGE
    lists = [100 * row["remote_lists"] for row in results("2026-11-15-traffic/traffic.json")["rows"]]
    assert f"{min(lists):.0f} to {max(lists):.0f} % would be asked for elsewhere" in PAGE
    batch = cost_model.best_batch(results("2026-11-15-h200-scale/scale-minibatch.json"))
    remote = max(row["remote"] for row in results("2026-11-15-traffic/traffic.json")["rows"])
    found = cost_model.needs(Workload(), Machine(), batch, remote)
    assert f"{found.structure / 1e12:.2f} TB and features {found.features / 1e12:.2f} TB" in PAGE
    assert f"**{found.machines} machines with {found.machines * Machine().gpus} GPUs**" in PAGE
    assert f"{found.whole_gpus:,} H200" in PAGE
    assert f"reads {found.batch_bytes / 1e6:.0f} MB of features" in PAGE
    batches_of_an_epoch = Workload().seeds / Workload().batch_size
    each = batches_of_an_epoch / found.machines / Machine().gpus
    assert f"{batches_of_an_epoch:,.0f} batches, {each:,.0f} for each GPU" in PAGE
    slow = cost_model.needs(Workload(), Machine(network=25e9 / 8), batch, remote)
    assert f"by hash is {slow.slowed:.1f} times slower" in PAGE
