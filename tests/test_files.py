import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torch_goat.files import Busy, is_locked, locked, write_atomic


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    write_atomic(path, "one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.txt"
    write_atomic(path, "one")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, "two")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


HOLD = """
import sys, time
from pathlib import Path
from torch_goat.files import locked
with locked(Path(sys.argv[1]), wait=False):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_belongs_to_one_process_until_it_ends_however(tmp_path: Path) -> None:
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


def test_looking_whether_a_folder_is_held_changes_nothing(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "none")
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []
