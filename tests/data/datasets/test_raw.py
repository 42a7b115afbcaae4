import gzip
import hashlib
import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.data.datasets.tiny import NOWHERE, put
from torch_goat.data.datasets import DataError
from torch_goat.data.datasets.raw import RawFile, check_whole, data_folder, obtain
from torch_goat.settings import SettingsError


def test_the_data_folder_comes_first(tmp_path: Path, cache: Path) -> None:
    file = RawFile("Some/raw/a.txt", NOWHERE, "edges")
    downloaded = put(cache / "raw/Some/raw/a.txt", "old\n")
    assert obtain("some", [file], tmp_path / "data") == [downloaded]
    mine = put(tmp_path / "data/Some/raw/a.txt", "mine\n")
    assert obtain("some", [file], tmp_path / "data") == [mine]
    assert obtain("some", [file], None) == [downloaded]


def test_members_of_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("all/raw/a.csv.gz", gzip.compress(b"1\n"))
        members.writestr("all/b.txt", "2\n")
    files = [
        RawFile("Some/a.csv.gz", archive.as_uri(), "edges", member="all/raw/a.csv.gz"),
        RawFile("Some/b.txt", archive.as_uri(), "labels", member="all/b.txt"),
    ]
    a, b = obtain("some", files, None)
    assert gzip.decompress(a.read_bytes()) == b"1\n"
    assert b.read_text() == "2\n"
    missing = RawFile("Some/c.txt", archive.as_uri(), "labels", member="all/c.txt")
    with pytest.raises(DataError, match=r"all\.zip is damaged or lacks all/c\.txt"):
        obtain("some", [missing], None)


def test_a_download_that_is_cut_or_changed_is_not_kept(tmp_path: Path, cache: Path) -> None:
    source = put(tmp_path / "a.txt", "one\ntw")
    with pytest.raises(DataError, match=r"the download of Some/a\.txt is damaged or truncated \(it has 1 lines"):
        obtain("some", [RawFile("Some/a.txt", source.as_uri(), "edges", lines=2)], None)
    published = hashlib.sha256(b"one\ntwo\n").hexdigest()
    with pytest.raises(DataError, match=r"the download of Some/a\.txt is not the published file"):
        obtain("some", [RawFile("Some/a.txt", source.as_uri(), "edges", sha256=published)], None)
    assert not list(cache.rglob("a.txt"))


def test_a_cut_anywhere_is_refused_by_name(tmp_path: Path) -> None:
    numbers = np.arange(500)
    np.savez(tmp_path / "plain.npz", a=numbers, b=numbers)
    np.savez_compressed(tmp_path / "packed.npz", a=numbers, b=numbers)
    np.save(tmp_path / "a.npy", numbers)
    for name in ("a.csv.gz", "a.txt"):
        put(tmp_path / name, "\n".join(map(str, numbers)) + "\n")
    for path in tmp_path.glob("*.*"):
        file = RawFile(path.name, NOWHERE, "edges", lines=500 if path.suffix == ".txt" else 0)
        check_whole(file, path, path)
        content = path.read_bytes()
        for length in (0, 1, len(content) // 3, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:length])
            with pytest.raises(DataError, match=f"^{re.escape(str(path))} is damaged or truncated .* replace it with"):
                check_whole(file, path, path)


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.mark,))


def test_arrays_of_objects_are_refused_and_run_nothing(tmp_path: Path) -> None:
    mark, array, plain = tmp_path / "ran", tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(array, features=np.array([Trap(mark)], dtype=object))
    plain.write_bytes(pickle.dumps(Trap(mark)))
    for path in (array, plain):
        with pytest.raises(DataError, match=f"{path.name} is damaged"):
            check_whole(RawFile(path.name, NOWHERE, "features"), path, path)
    assert not mark.exists()


def test_the_folder_that_the_user_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_folder(None) is None
    monkeypatch.setenv("TORCH_GOAT_DATA", str(tmp_path))
    assert data_folder(None) == tmp_path
    (tmp_path / "other").mkdir()
    assert data_folder(tmp_path / "other") == tmp_path / "other"
    with pytest.raises(SettingsError, match=r"nowhere does not exist"):
        data_folder(tmp_path / "nowhere")
