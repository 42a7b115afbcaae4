import json
from pathlib import Path

from tests.experiments.recipes.recipes import write
from torch_goat.experiments import train
from torch_goat.experiments.recipes import plan, read_recipe
from torch_goat.experiments.tables import Ledger, collect


def test_results_come_from_the_folders_of_the_same_experiment(tmp_path: Path) -> None:
    runs = plan(read_recipe(write(tmp_path)), rows=["gcn", "gat"])
    by_folder = {str(run.folder): run for run in runs}
    done = [by_folder[name] for name in ("size/gcn/0", "size/gcn/1", "pooling/gcn/1")]
    for run in done:
        train(run.experiment, tmp_path / "table" / run.folder, device="cpu")
    other, folder = by_folder["size/gcn/0"], tmp_path / "table/size/gat/0"
    train(other.experiment, folder, device="cpu")  # in the place of another
    damaged = tmp_path / "table/pooling/gcn/0"
    train(by_folder["pooling/gcn/0"].experiment, damaged, device="cpu")
    (damaged / "result.json").write_text('{"metrics"')
    scores, problems, devices = collect(runs, Ledger(tmp_path / "table"))

    def test_metric(run_folder: str, metric: str) -> float:
        return json.loads((tmp_path / "table" / run_folder / "result.json").read_text())["metrics"]["test"][metric]

    assert scores == {
        ("gcn", "size"): {0: test_metric("size/gcn/0", "mse"), 1: test_metric("size/gcn/1", "mse")},
        ("gcn", "pooling"): {1: test_metric("pooling/gcn/1", "accuracy")},
    }
    assert problems.keys() == {("gat", "size"), ("gcn", "pooling")}
    assert "model.name = 'gcn' there, 'gat' here" in problems["gat", "size"]
    assert problems["gcn", "pooling"].startswith(f"{damaged / 'result.json'} is damaged")
    assert devices.total() == 3
