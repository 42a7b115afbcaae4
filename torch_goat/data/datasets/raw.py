"""Raw files as their authors publish them: where they lie, where they come from, whether they are whole."""

import gzip
import hashlib
import io
import os
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import numpy as np

from torch_goat.data.datasets.cache import cache_folder, cache_lock
from torch_goat.data.datasets.errors import DataError
from torch_goat.settings import SettingsError

TIMEOUT = 30  # seconds without an answer


@dataclass(frozen=True)
class RawFile:
    """A file that a dataset is read from.

    Args:
        path: Its place below the data folder.
        url: Where it comes from.
        holds: What is in it, for errors.
        sha256: The digest of the published file, where no other may be read: a pickle can run code.
        lines: How many lines a text file has, the last one ended too, so that a cut anywhere shows.
        member: Its name in the archive that ``url`` gives; empty if ``url`` gives the file itself.
    """

    path: str
    url: str
    holds: str
    sha256: str = ""
    lines: int = 0
    member: str = ""


def data_folder(data_dir: str | Path | None) -> Path | None:
    """The folder of raw files that the user names, by argument or by ``TORCH_GOAT_DATA``."""
    named = data_dir or os.environ.get("TORCH_GOAT_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise SettingsError(
            f"the data folder {folder} does not exist; name another with --data-dir or TORCH_GOAT_DATA."
        )
    return folder


def find(file: RawFile, folder: Path | None) -> Path | None:
    """The file in the data folder, or else among those that were downloaded before."""
    places = [place / file.path for place in (folder, cache_folder() / "raw") if place is not None]
    return next((place for place in places if place.is_file()), None)


def obtain(name: str, files: Sequence[RawFile], folder: Path | None) -> list[Path]:
    """The paths of a dataset's files; those that lie nowhere are downloaded to the cache."""
    if any(find(file, folder) is None for file in files):
        with cache_lock(name):
            missing = [file for file in files if find(file, folder) is None]  # others may have fetched them meanwhile
            for url in dict.fromkeys(file.url for file in missing):
                _download(name, [file for file in missing if file.url == url], folder)
    return [path for file in files if (path := find(file, folder)) is not None]


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    try:
        with open(path, "rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); make it readable.") from error


def check_published(file: RawFile, found: str, named: Path | str) -> None:
    """Refuses a file whose digest is not the published one, where only that one may be read.

    Args:
        file: What the file should be.
        found: Its digest.
        named: What an error calls it.
    """
    if file.sha256 and found != file.sha256:
        raise DataError(
            f"{named} is not the published file (SHA-256 {found[:12]}..., not {file.sha256[:12]}...); "
            f"replace it with {file.url}."
        )


def check_whole(file: RawFile, path: Path, named: Path | str) -> None:
    """Refuses a file that is damaged or cut short, and arrays that hold Python objects.

    Args:
        file: What the file should be.
        path: Where it lies.
        named: What an error calls it.
    """
    try:
        if path.stat().st_size == 0:
            raise ValueError("it is empty")
        if path.suffix == ".npz":
            with open(path, "rb") as content, np.load(content, allow_pickle=False) as arrays:
                for key in arrays.files:
                    arrays[key]
        elif path.suffix == ".npy":
            np.load(path, allow_pickle=False)
        elif path.suffix == ".gz":
            with gzip.open(path) as text:
                while text.read(1 << 20):
                    pass
        elif file.lines and (lines := path.read_bytes().count(b"\n")) != file.lines:
            raise ValueError(f"it has {lines} lines instead of {file.lines}")
    except (ValueError, TypeError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{named} is damaged or cut short ({error}); replace it with {file.url}.") from error


def _download(name: str, files: list[RawFile], folder: Path | None) -> None:
    """Fetches files of one address into the cache; each appears there whole and checked, or not at all."""
    first, url = files[0], files[0].url
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            content = answer.read()
    except (OSError, HTTPException, ValueError) as error:
        place = (folder or cache_folder() / "raw") / first.path
        others = f"; {len(files) - 1} more from there are missing too" if len(files) > 1 else ""
        raise DataError(
            f"{name} needs {first.path} ({first.holds}{others}), which is not in "
            f"{folder or 'a data folder (none is named)'} and could not be downloaded ({error}); "
            f"take {first.member or 'it'} from {url} and put it at {place}."
        ) from error
    target = cache_folder() / "raw"
    target.mkdir(parents=True, exist_ok=True)
    for file in files:
        with tempfile.TemporaryDirectory(dir=target, prefix=".part-") as part:
            arrived = Path(part) / Path(file.path).name
            arrived.write_bytes(_member(content, file) if file.member else content)
            named = f"the download of {file.path}"
            check_published(file, digest(arrived), named)
            check_whole(file, arrived, named)
            (target / file.path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(arrived, target / file.path)


def _member(archive: bytes, file: RawFile) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as members:
            return members.read(file.member)
    except (zipfile.BadZipFile, KeyError, zlib.error) as error:
        raise DataError(f"{file.url} is damaged or lacks {file.member} ({error}); try again later.") from error
