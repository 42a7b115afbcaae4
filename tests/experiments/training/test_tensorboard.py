import sys
from pathlib import Path

import pytest

from torch_goat.experiments import Epoch, TensorBoard


def test_curves_can_be_read_back(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with TensorBoard(tmp_path) as board:
        for number in (1, 2, 3):
            board(Epoch(number, 3, "accuracy", 1 / number, 2 / number, 0.25, 0.5, 0.75, 0.1))
    with TensorBoard(tmp_path) as board:  # a run that goes on from its first epoch
        board(Epoch(2, 3, "accuracy", 9.0, 8.0, 0.25, 0.5, 0.75, 0.1))
    read = events.EventAccumulator(str(tmp_path))
    read.Reload()
    tags = {"loss/train", "loss/val", "accuracy/train", "accuracy/val", "accuracy/test"}
    assert set(read.Tags()["scalars"]) == tags
    assert [(one.step, one.value) for one in read.Scalars("loss/train")] == [(1, 1.0), (2, 9.0)]


def test_without_its_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install 'torch-goat\[tensorboard\]'"):
        TensorBoard(tmp_path)
