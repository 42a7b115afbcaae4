import csv
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import torch_goat
from tests.data.tables.files import NODES, write
from torch_goat.data.tables import TableError, load_tables
from torch_goat.experiments import Experiment, Run, RunError, TrainingOptions, predict, train
from torch_goat.experiments.models import ModelOptions
from torch_goat.settings import SettingsError

SHORT = TrainingOptions(epochs=4, patience=0, learning_rate=0.05)


def run(folder: Path, model: str = "gcn", **options) -> Path:
    """A short run on the tables that it writes."""
    tables = write(folder, **options)
    tables = replace(tables, digest=load_tables(tables).digest)
    wanted = Experiment("own", "random", model=ModelOptions(name=model, dropout=0.0), training=SHORT, tables=tables)
    train(wanted, folder / "run", device="cpu")
    return folder / "run"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("trained"))


def test_predictions_are_what_the_trained_network_says(trained: Path) -> None:
    done = Run(trained)
    graph = done.graph()
    assert (graph.ids, graph.classes, graph.target) == (tuple("abcdefghij"), ("no", "yes"), "label")
    found = predict(done, trained.parent / "nodes.csv", trained.parent / "edges.csv")
    out = torch_goat.load(trained)(graph.data.x, graph.data.edge_index)
    torch.testing.assert_close(found.probabilities.float(), out.softmax(-1))
    assert list(found.values) == [graph.classes[number] for number in out.argmax(-1).tolist()]
    accuracy = (out.argmax(-1) == graph.data.y)[graph.data.test_mask].double().mean()
    assert float(accuracy) == done.result.metrics["test"]["accuracy"]

    header, *rows = csv.reader(found.to_csv().splitlines())
    assert header == ["id", "prediction", "probability of no", "probability of yes"]
    assert [row[0] for row in rows] == list(graph.ids)
    for name, value, *shares in rows:
        assert sum(map(float, shares)) == pytest.approx(1, abs=1e-5)
        assert value == ("no", "yes")[float(shares[1]) > float(shares[0])], name


def test_numbers_are_predicted_in_their_own_unit(tmp_path: Path) -> None:
    done = Run(run(tmp_path, target="age", drop=("label",)))
    graph = done.graph()
    found = predict(done, tmp_path / "nodes.csv", tmp_path / "edges.csv")
    out = done.network(graph.data.x, graph.data.edge_index).detach().view(-1)
    values = torch.tensor(found.values)
    torch.testing.assert_close(values, (out * graph.target_scale + graph.target_mean).to(values.dtype))
    truth = torch.tensor([30, 40, 0, 20, 50, 60, 35, 45, 25, 55.0])
    error = (values - truth).square()[graph.data.test_mask].mean()
    assert done.result.metrics["test"]["mse"] == pytest.approx(float(error), rel=1e-4)
    assert found.to_csv().splitlines()[0] == "id,prediction"


def test_edge_features_are_read_again(tmp_path: Path) -> None:
    edges = "source,target,weight\na,b,1\nb,c,5\nc,d,2\nd,e,9\ne,f,1\nf,a,4\ng,h,3\nh,i,1\ni,j,7\n"
    done = Run(run(tmp_path, "gat", edges=edges, edge_features=True))
    first = predict(done, tmp_path / "nodes.csv", tmp_path / "edges.csv")
    (tmp_path / "edges.csv").write_text(edges.replace("b,c,5", "b,c,-5"))
    other = predict(done, tmp_path / "nodes.csv", tmp_path / "edges.csv")
    assert not torch.equal(first.probabilities, other.probabilities)
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    with pytest.raises(TableError, match=r"edges\.csv, line 1: there is no column 'weight' for a feature"):
        predict(done, tmp_path / "nodes.csv", tmp_path / "edges.csv")


def test_a_model_that_reads_no_edge_features_refuses_them(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no layer of this network \(gcn -> gcn\) reads edge features"):
        run(tmp_path, edges="source,target,weight\na,b,1\nb,c,5\n", edge_features=True)


def test_a_run_does_not_go_on_with_other_tables(tmp_path: Path) -> None:
    folder = run(tmp_path)
    (tmp_path / "nodes.csv").write_text(NODES.replace("a,30", "a,99"))
    with pytest.raises(TableError, match="changed since the run was started"):
        Run(folder).graph()


def test_named_datasets_have_no_tables_to_predict_on(tmp_path: Path) -> None:
    train(Experiment("top2", model=ModelOptions(name="mlp"), training=SHORT), tmp_path / "run", device="cpu")
    with pytest.raises(SettingsError, match="was trained on the dataset 'top2'"):
        predict(Run(tmp_path / "run"), "nodes.csv", "edges.csv")


@pytest.mark.parametrize("content", [None, "{", '{"format": 99}', "[]", '{"target": "label"}', "[" * 10_000])
def test_a_schema_that_is_damaged_is_refused(tmp_path: Path, trained: Path, content: str | None) -> None:
    copy = Path(shutil.copytree(trained, tmp_path / "copy"))
    (copy / "schema.json").unlink()
    if content is not None:
        (copy / "schema.json").write_text(content)
    with pytest.raises(RunError, match="damaged"):
        torch_goat.load(copy)
