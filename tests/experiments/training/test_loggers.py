import importlib.util
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.small_runs import MODELS
from torch_goat.experiments import Epoch, Experiment, MLflow, RunError, TensorBoard, WandB
from torch_goat.settings import SettingsError

EXPERIMENT = Experiment("top2", model=MODELS["gcn"])


def epoch(number: int, train_loss: float) -> Epoch:
    return Epoch(number, 3, "accuracy", train_loss, 2 / number, 0.25, 0.5, 0.75, 0.1)


def test_curves_can_be_read_back_from_tensorboard(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with TensorBoard(tmp_path) as board:
        for number in (1, 2, 3):
            board(epoch(number, 1 / number))
    with TensorBoard(tmp_path) as board:  # a run that goes on from its first epoch
        board(epoch(2, 9.0))
    read = events.EventAccumulator(str(tmp_path))
    read.Reload()
    tags = {"loss/train", "loss/val", "accuracy/train", "accuracy/val", "accuracy/test"}
    assert set(read.Tags()["scalars"]) == tags
    assert [(one.step, one.value) for one in read.Scalars("loss/train")] == [(1, 1.0), (2, 9.0)]


@pytest.mark.filterwarnings("ignore")  # of MLflow and of the packages that it imports
def test_mlflow_continues_the_run_of_a_resumed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    folder = tmp_path / "run"
    folder.mkdir()
    for first in (1, 3):
        with MLflow(EXPERIMENT, folder) as log:
            for number in (first, first + 1):
                log(epoch(number, 1 / number))
    client = mlflow.MlflowClient()
    (one,) = client.search_runs([client.get_experiment_by_name("torch-goat").experiment_id])
    assert (one.info.run_name, one.info.status) == ("run", "FINISHED")
    assert one.data.params["model.name"] == "gcn"
    history = client.get_metric_history(one.info.run_id, "loss/train")
    assert [(at.step, at.value) for at in history] == [(number, 1 / number) for number in (1, 2, 3, 4)]
    assert set(one.data.metrics) == {"loss/train", "loss/val", "accuracy/train", "accuracy/val", "accuracy/test"}
    mlflow.set_tracking_uri((tmp_path / "other").as_uri())  # where the run is unknown
    with suppress(KeyboardInterrupt), MLflow(EXPERIMENT, folder) as log:
        log(epoch(1, 1.0))
        raise KeyboardInterrupt
    client = mlflow.MlflowClient()
    (other,) = client.search_runs([client.get_experiment_by_name("torch-goat").experiment_id])
    assert other.info.status == "FAILED"
    mlflow.set_tracking_uri("nonsense://x")
    with pytest.raises(RunError, match=r"^MLflow cannot be used \(.*\); check MLFLOW_TRACKING_URI"):
        MLflow(EXPERIMENT, folder)(epoch(1, 1.0))


def leveldb_records(content: bytes) -> Iterator[bytes]:
    """The records of a small W&B file: a header of 7 bytes, then checksum, length, type and content of each."""
    at = 7
    while at < len(content):
        size, kind = struct.unpack_from("<HB", content, at + 4)
        assert kind == 1  # whole: the file is smaller than a block
        yield content[at + 7 : at + 7 + size]
        at += 7 + size


@pytest.mark.filterwarnings("ignore")  # of the packages that W&B imports
def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    ids = []
    for first in (1, 3):
        with WandB(EXPERIMENT, tmp_path) as log:
            for number in (first, first + 1):
                log(epoch(number, 1 / number))
        ids.append((tmp_path / "wandb.id").read_text())
        (tmp_path / "wandb").rename(tmp_path / f"part-{first}")  # runs of the same second have the same folder
    assert ids[0] == ids[1]
    wandb.teardown()  # waits for the process that writes the files
    seen = []
    for file in sorted(tmp_path.glob(f"part-*/offline-run-*-{ids[0]}/*.wandb")):
        for data in leveldb_records(file.read_bytes()):
            items = Record.FromString(data).history.item
            seen += [item for item in items if "loss/train" in (item.key, *item.nested_key)]
    assert [float(item.value_json) for item in seen] == [1 / number for number in (1, 2, 3, 4)]


def test_weights_and_biases_without_an_account_says_how_to_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setattr(wandb, "login", lambda **_: False)
    wandb.teardown()
    with pytest.raises(SettingsError, match="run wandb login, or set WANDB_MODE=offline"):
        WandB(EXPERIMENT, tmp_path)


def test_without_its_package_a_logger_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install 'torch-goat\[tensorboard\]'"):
        TensorBoard(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for logger, extra in ((MLflow, "mlflow"), (WandB, "wandb")):
        with pytest.raises(ImportError, match=rf"pip install 'torch-goat\[{extra}\]'"):
            logger(EXPERIMENT, tmp_path)
