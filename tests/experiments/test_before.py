"""Run folders that an earlier version wrote, in ``before/``."""

import shutil
import tomllib
from pathlib import Path

import pytest
import torch

import torch_goat
from torch_goat.data import datasets
from torch_goat.data.tables import Tables
from torch_goat.experiments import Experiment, Run, finished, predict
from torch_goat.settings import leaves, to_table

BEFORE = Path(__file__).parent / "before"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """The run on tables, whose config names the folder of the tables."""
    folder = Path(shutil.copytree(BEFORE / "tables", tmp_path / "tables"))
    config = folder / "run/config.toml"
    config.write_text(config.read_text().replace("FOLDER", str(folder)))
    return folder


def check_meaning(run: Run) -> None:
    """Compares every key with the file; keys that were added since then have their defaults."""
    written = tomllib.loads((run.folder / "config.toml").read_text())
    tables = Tables(nodes="", target="y") if "tables" in written else None
    plain = dict(leaves(to_table(Experiment(written["dataset"], tables=tables))))
    assert dict(leaves(to_table(run.experiment))) == plain | dict(leaves(written))


def test_a_run_on_a_named_dataset_gives_the_metrics_that_were_written() -> None:
    run = Run(BEFORE / "top2")
    check_meaning(run)
    data = datasets.load("top2", index=2)
    out = torch_goat.load(BEFORE / "top2")(data.x, data.edge_index)
    accuracy = (out.argmax(dim=1) == data.y)[data.test_mask].double().mean()
    assert float(accuracy) == run.result.metrics["test"]["accuracy"]
    assert run.curves["val_accuracy"][run.result.best_epoch - 1] == run.result.metrics["val"]["accuracy"]
    assert finished(run.experiment, BEFORE / "top2") == run.result


def test_a_run_on_tables_gives_the_metrics_that_were_written_and_predicts(tables: Path) -> None:
    run = Run(tables / "run")
    check_meaning(run)
    graph = run.graph()
    found = predict(run, tables / "nodes.csv", tables / "edges.csv")
    assert found.ids == graph.ids == tuple("abcdefghijkl")
    right = torch.tensor([one == two for one, two in zip(found.values, found.truth or (), strict=True)])
    with torch.no_grad():  # its probabilities were not calibrated
        assert torch.equal(found.probabilities, run.network.on(graph.data).double().softmax(dim=-1))
    for split, metrics in run.result.metrics.items():
        assert float(right[graph.data[f"{split}_mask"]].double().mean()) == metrics["accuracy"]
    data = graph.data
    _, orderings = run.network(data.x, data.edge_index, data.edge_attr, return_orderings=True)
    [(epoch, layer, recorded)] = run.orderings
    assert (epoch, layer) == (0, 1)
    assert torch.equal(recorded.ptr, orderings[0].ptr)  # the same neighbourhoods, before training


@pytest.mark.parametrize(
    "key", ["add_self_loops", "mean_residual", "scaling", "rnn_init", "input_gain", "averaging", "batch_size"]
)
def test_a_key_that_is_missing_from_an_old_config_keeps_the_value_it_had(tmp_path: Path, key: str) -> None:
    folder = Path(shutil.copytree(BEFORE / "top2", tmp_path / "run"))
    lines = (folder / "config.toml").read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(f"{key} =")]
    assert len(kept) == len(lines) - 1
    (folder / "config.toml").write_text("".join(kept))
    assert Run(folder).experiment == Run(BEFORE / "top2").experiment
