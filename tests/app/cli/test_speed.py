"""What needs no PyTorch does not wait for it, and what does says first what it reads."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from torch_geometric import datasets as pyg

from tests.data.tables.files import write
from tests.small_runs import result
from torch_goat.data.datasets import DATASETS
from torch_goat.experiments import Epoch, Event
from torch_goat.experiments.models import kinds, layers
from torch_goat.ops.ragged_rnn.backends import BACKENDS

RUN = """
import contextlib, io, sys

def goat(*arguments):
    from torch_goat.app.cli.app import run
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), contextlib.suppress(SystemExit):
        run(arguments)
    heavy = {"torch", "torch_geometric", "pandas", "scipy", "sklearn", "matplotlib"} & {*sys.modules}
    assert not heavy, (arguments, heavy)
    return printed.getvalue()
"""


def python(code: str, folder: Path) -> str:
    ended = subprocess.run([sys.executable, "-c", RUN + code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_listing_and_argument_errors_do_not_import_pytorch(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    (run / "config.toml").write_text(
        'dataset = "top2"\n[model]\nname = "goat"\nbackend = "torch"\n[training]\nbatch_size = 9\nfanout = [2, 2]\n'
    )
    code = """
for arguments, said in {
    ("--help",): "reproduce",
    ("train", "--help"): "--folds",
    ("runs",): "stopped",
    ("datasets",): "cora-content",
    ("datasets", "cora"): "Planetoid",
    ("train", "top2", "--tensorbord"): "--tensorboard",
    ("train", "nodes.csv", "edges.csv"): "name the node column to predict with --target",
    ("train", "nodes.csv", "edges.csv", "--target", "y", "--time", "a", "--folds", "5"): "cannot be combined",
    ("train", "top2", "--set", "hads=3"): "did you mean 'heads'?",
    ("train", "top2", "--device", "gpu"): "the device must be",
    ("tune", "corra"): "did you mean 'cora'?",
    ("pid", "corra"): "did you mean 'cora'?",
    ("reproduce", "tabel2"): "did you mean 'table2'",
}.items():
    assert said in goat(*arguments), (arguments, goat(*arguments))
"""
    python(code, tmp_path)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("train nodes.csv edges.csv --target label", "nodes.csv and "),
        ("pid nodes.csv edges.csv --target label", "nodes.csv and "),
        ("explain run --node a", "run"),
        ("report run", "the runs in run"),
    ],
)
def test_what_is_read_is_told_before_pytorch_is_imported(tmp_path: Path, command: str, said: str) -> None:
    write(tmp_path)
    code = f"""
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "pandas"):
            raise SystemExit

sys.meta_path.insert(0, Stop())
print(goat(*{command.split()!r}))
"""
    printed = python(code, tmp_path)
    assert printed.startswith("Reading ")
    assert printed.strip().endswith(" ...")
    assert said in printed


def test_events_of_other_processes_are_read_without_pyg(tmp_path: Path) -> None:
    """Ctrl-C in the middle of its import would leave it unusable for the rest of the process."""
    metrics = {"val": {"accuracy": 0.5}}
    events = [
        Event("epoch", 0, epoch=Epoch(1, 2, "accuracy", *[0.5] * 6)),
        Event("finished", 0, result=result(metrics)),
    ]
    python(
        f"import pickle; pickle.loads({pickle.dumps(events)!r}); assert 'torch_geometric' not in sys.modules", tmp_path
    )


def test_names_that_are_written_down_without_their_packages_are_right() -> None:
    assert kinds.BACKENDS == BACKENDS
    assert kinds.KINDS.keys() == layers.BUILD.keys()
    for dataset, kind in (("cora", "Planetoid"), ("photo", "Amazon"), ("cs", "Coauthor"), ("cornell", "WebKB"),
                          ("lastfm-asia", "LastFMAsia"), ("tolokers", "HeterophilousGraphDataset")):  # fmt: skip
        assert all(file.url.startswith(getattr(pyg, kind).url) for file in DATASETS[dataset].raw)
