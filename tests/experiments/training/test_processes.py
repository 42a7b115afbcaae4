import csv
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

from tests.experiments.training import group_member
from tests.experiments.training.graphs import tiny, tiny_steps
from tests.processes import start_in
from torch_goat.experiments import TrainingOptions, train
from torch_goat.experiments.training.batches import check_batches
from torch_goat.experiments.training.processes import Processes, make_fabric, meet, processes
from torch_goat.experiments.training.task import Task
from torch_goat.settings import SettingsError

ROOT = Path(__file__).parents[3]
SECONDS = 240.0  # far more than it takes


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    folder = tmp_path_factory.mktemp("alone")
    with tiny_steps():
        train(group_member.EXPERIMENT, folder, device="cpu")
    return folder


def curves(folder: Path) -> list[list[float]]:
    with open(folder / "metrics.csv", newline="") as file:
        return [[float(value) for value in row[:-1]] for row in list(csv.reader(file))[1:]]


def check_equal(folder: Path, alone: Path) -> None:
    """Both runs came to the same, up to rounding."""
    for here, there in zip(curves(folder), curves(alone), strict=True):
        assert here == pytest.approx(there, rel=2e-3, abs=1e-6)
    weights, wanted = (load_file(one / "model.safetensors") for one in (folder, alone))
    for name, value in wanted.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-2, atol=1e-3)


def launch(folder: Path) -> None:
    """What ``torchrun --standalone --nproc-per-node=2 --max-restarts=1`` does, with forked processes."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    where = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": "test"}
    config = LaunchConfig(1, 1, nproc_per_node=2, max_restarts=1, start_method="fork", **where)
    elastic_launch(config, group_member.main)(folder, 11)


def test_two_processes_one_of_which_is_killed_come_to_the_result_of_one(tmp_path: Path, alone: Path) -> None:
    folder = tmp_path / "run"
    process = start_in(tmp_path, launch, folder)
    process.join(SECONDS)
    assert process.exitcode == 0, (tmp_path / "err").read_text()
    assert (tmp_path / "killed").exists()
    said = [(tmp_path / f"process-{rank}.txt").read_text().split() for rank in range(2)]
    # In its second life, each went on after the last whole epoch: the eleventh step is in the fourth (of 3 steps).
    assert [(lives, epoch) for lives, epoch, *_ in said] == [("2", "4")] * 2
    assert said[0][2] == said[1][2]
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "config.toml", "digests.json", "metrics.csv", "model.safetensors", "result.json",
    }  # fmt: skip
    check_equal(folder, alone)


def allowed() -> str:
    """Why there can be no network namespaces here, or nothing."""
    if shutil.which("ip") is None:
        return "there is no command ip (iproute2)"
    tried = subprocess.run(["ip", "netns", "add", "goat-try"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"network namespaces are not permitted: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", "goat-try"], check=False)
    return ""


@pytest.fixture
def machines() -> Iterator[list[str]]:
    """Two network namespaces with a cable between them, 10.77.0.1 and 10.77.0.2."""
    if reason := allowed():
        pytest.skip(reason)
    names = [f"goat-{os.getpid()}-{number}" for number in range(2)]
    ends = [f"goat{os.getpid() % 10**6}{letter}" for letter in "ab"]
    steps = [["ip", "netns", "add", name] for name in names]
    steps.append(["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]])
    for number, (name, end) in enumerate(zip(names, ends, strict=True), start=1):
        inside = ["ip", "-n", name]
        steps += [
            ["ip", "link", "set", end, "netns", name, "name", "cable"],
            [*inside, "address", "add", f"10.77.0.{number}/24", "dev", "cable"],
            [*inside, "link", "set", "cable", "up"],
            [*inside, "link", "set", "lo", "up"],
        ]
    try:
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"network namespaces cannot be joined here: {done.stderr.strip()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def test_two_machines(tmp_path: Path, alone: Path, machines: list[str]) -> None:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    variables = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "cable"}
    running = []
    for number, name in enumerate(machines):
        options = ["--nnodes=2", "--nproc-per-node=1", f"--node-rank={number}"]
        options += ["--master-addr=10.77.0.1", "--master-port=29511"]
        folder = tmp_path / f"machine-{number}" / "run"  # each has a disk of its own
        folder.parent.mkdir()
        command = [sys.executable, "-m", "torch.distributed.run", *options, "-m", group_member.__name__, str(folder)]
        running.append(subprocess.Popen(["ip", "netns", "exec", name, *command], cwd=ROOT, env=variables))
    end = time.monotonic() + SECONDS
    codes = [process.wait(timeout=max(1.0, end - time.monotonic())) for process in running]
    assert codes == [0, 0]
    check_equal(tmp_path / "machine-0" / "run", alone)
    assert not (tmp_path / "machine-1" / "run").exists()  # only one process writes
    assert (tmp_path / "machine-1" / "process-1.txt").read_text().split()[3] == "1"


def test_a_new_group_does_not_hear_the_dead() -> None:
    store, lives = torch.distributed.HashStore(), []
    store.set("goat/here/1", "gone")  # as a process before it, which was killed, left it
    for _ in range(2):
        with ThreadPoolExecutor(3) as pool:
            lives.append({*pool.map(lambda rank: meet(store, rank, 3, 20.0), range(3))})
    assert [len(names) for names in lives] == [1, 1]
    assert lives[0] != lives[1]


def test_processes_that_do_not_come() -> None:
    with pytest.raises(RuntimeError, match="2 of the 3 processes did not come within 0 s"):
        meet(torch.distributed.HashStore(), 0, 3, 0.1)


@pytest.mark.usefixtures("torchrun")
def test_what_torchrun_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes() == Processes(1, 2, 2, 1)
    assert not processes().leads
    monkeypatch.setenv("GROUP_WORLD_SIZE", "3")
    with pytest.raises(SettingsError, match="2 processes on 3 machines, 2 of them here"):
        processes()
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")  # the others are of something else
    assert processes() == Processes()
    assert processes().leads


@pytest.mark.usefixtures("torchrun")
def test_devices_that_do_not_go_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SettingsError, match="2 processes on this machine, but PyTorch sees 1 GPUs"):
        make_fabric("auto", "32-true")
    with pytest.raises(SettingsError, match="'cuda:0' is for one process, but there are 2"):
        make_fabric("cuda:0", "32-true")


def test_a_world_that_does_not_fit() -> None:
    task = Task(tiny(), torch.device("cpu"))
    with pytest.raises(SettingsError, match="full batches are trained by one process, but there are 2"):
        check_batches(task, TrainingOptions(), 2)
    with pytest.raises(SettingsError, match="8 processes are too many for 20 training nodes in 3 steps of at most 7"):
        check_batches(task, TrainingOptions(batch_size=7), 8)
    check_batches(task, TrainingOptions(batch_size=7), 6)


@pytest.mark.parametrize(
    ("device", "precision", "message"),
    [
        *((device, "32-true", "'auto', 'cpu', 'cuda' or 'cuda:1', got") for device in ("gpu", "cuda:x", "cpu:1", "")),
        (gone := f"cuda:{torch.cuda.device_count()}", "32-true", f"there is no device {gone!r}"),
        ("cpu", "16-mixed", "'16-mixed' needs a GPU"),
    ],
)
def test_what_cannot_be_had_is_refused(device: str, precision: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_fabric(device, precision)


def test_auto_takes_a_gpu_if_there_is_one() -> None:
    assert make_fabric("auto", "32-true").device.type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_without_fabric_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning_fabric", "lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'torch-goat\[train\]'"):
        make_fabric("cpu", "32-true")


def test_fabric_may_come_from_the_larger_package(monkeypatch: pytest.MonkeyPatch) -> None:
    larger = ModuleType("lightning.fabric")
    larger.Fabric = lambda **options: options  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.fabric", larger)
    assert make_fabric("cpu", "32-true") == {"accelerator": "cpu", "devices": 1, "precision": "32-true"}


def test_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("lightning_fabric")
    logger.addHandler(caplog.handler)
    try:
        make_fabric("cpu", "bf16-mixed")
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.records == []
