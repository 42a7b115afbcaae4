import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from torch_goat.files import Busy, is_locked, locked, write_atomic


def test_a_file_is_replaced_whole_or_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "file.txt"
    for content in ("one", b"two"):
        write_atomic(path, content)
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, "three")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("one")
    for target in ("target", "later"):
        link = tmp_path / f"link to {target}"
        link.symlink_to(tmp_path / target)
        write_atomic(link, "two")
        assert link.is_symlink()
        assert (tmp_path / target).read_text() == "two"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomic(pipe, "one")
        assert os.read(reading, 10) == b"one"
    finally:
        os.close(reading)
    assert pipe.is_fifo()


def test_a_folder_that_cannot_be_written_to_is_reported_by_the_files_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / ".file.txt.hidden.part"))
    monkeypatch.setattr(
        "tempfile.mkstemp", Mock(side_effect=refused)
    )  # whoever runs the tests may be allowed everything
    with pytest.raises(PermissionError) as caught:
        write_atomic(tmp_path / "file.txt", "one")
    assert caught.value.filename == str(tmp_path / "file.txt")


HOLD = """
import sys, time
from pathlib import Path
from torch_goat.files import locked
with locked(Path(sys.argv[1]), wait=False):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_belongs_to_one_process_until_it_ends_however(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "none")
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []  # looking changes nothing
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(Busy, match=f"another process is using the run {tmp_path}"),
            locked(tmp_path, wait=False, what="run"),
        ):
            pass
        assert is_locked(tmp_path)
        other.send_signal(signal.SIGKILL)
        other.wait(10)
    assert not is_locked(tmp_path)
    with locked(tmp_path, wait=False):
        pass
