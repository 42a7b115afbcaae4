"""Raw files as published by their authors: where to find them, how to download them, and whether they are intact."""

import gzip
import hashlib
import os
import tempfile
import urllib.request
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import numpy as np

from torch_goat.data.datasets.cache import DataError, cache_folder, cache_lock
from torch_goat.settings import SettingsError

TIMEOUT = 30  # seconds without a response


@dataclass(frozen=True)
class RawFile:
    """A file that a dataset is read from."""

    path: str  # in the data folder
    url: str
    holds: str  # a description of its content, for errors
    sha256: str = ""  # of the published file; required for pickles, which could execute code
    lines: int = 0  # of a text file, each terminated, to detect truncation
    member: str = ""  # its name in the zip archive at url; empty if url is the file itself


def data_folder(data_dir: str | Path | None) -> Path | None:
    """The user's folder of raw files, from the argument or ``TORCH_GOAT_DATA``."""
    named = data_dir or os.environ.get("TORCH_GOAT_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise SettingsError(f"the data folder {folder} does not exist; set --data-dir or TORCH_GOAT_DATA.")
    return folder


def find(file: RawFile, folder: Path | None) -> Path | None:
    """The path of a file in the data folder or among earlier downloads, if it exists."""
    places = [place / file.path for place in (folder, cache_folder() / "raw") if place is not None]
    return next((place for place in places if place.is_file()), None)


def obtain(name: str, files: Sequence[RawFile], folder: Path | None) -> list[Path]:
    """The paths of a dataset's files; missing files are downloaded to the cache."""
    if any(find(file, folder) is None for file in files):
        with cache_lock(name):
            missing = [file for file in files if find(file, folder) is None]  # another process may have fetched some
            for url in dict.fromkeys(file.url for file in missing):
                _download(name, [file for file in missing if file.url == url], folder)
    return [path for file in files if (path := find(file, folder)) is not None]


def published_digest(file: RawFile, path: Path, named: Path | str) -> str:
    """The SHA-256 of a file; raises an error, which calls the file ``named``, if another one was published."""
    try:
        with open(path, "rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); make it readable.") from error
    if file.sha256 and found != file.sha256:
        raise DataError(
            f"{named} is not the published file (SHA-256 {found[:12]}... instead of {file.sha256[:12]}...); "
            f"replace it with {file.url}."
        )
    return found


def check_whole(file: RawFile, path: Path, named: Path | str) -> None:
    """Raises an error, which calls the file ``named``, if it is damaged, truncated, or contains Python objects."""
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
    except (ValueError, TypeError, EOFError, OSError, BadZipFile, zlib.error) as error:
        raise DataError(f"{named} is damaged or truncated ({error}); replace it with {file.url}.") from error


def _download(name: str, files: list[RawFile], folder: Path | None) -> None:
    """Downloads the files of one address to the cache; each one appears there only once it has been checked."""
    first, url = files[0], files[0].url
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            content = answer.read()
    except (OSError, HTTPException, ValueError) as error:
        place = (folder or cache_folder() / "raw") / first.path
        others = f"; {len(files) - 1} more files of this archive are missing" if len(files) > 1 else ""
        raise DataError(
            f"{name} needs {first.path} ({first.holds}{others}), which is not in "
            f"{folder or 'a data folder (none is set)'} and could not be downloaded ({error}); "
            f"get {first.member or 'it'} from {url} and save it as {place}."
        ) from error
    target = cache_folder() / "raw"
    target.mkdir(parents=True, exist_ok=True)
    for file in files:
        with tempfile.TemporaryDirectory(dir=target, prefix=".part-") as part:
            arrived = Path(part) / Path(file.path).name
            try:
                arrived.write_bytes(ZipFile(BytesIO(content)).read(file.member) if file.member else content)
            except (BadZipFile, KeyError, zlib.error) as error:
                raise DataError(f"{url} is damaged or lacks {file.member} ({error}); try again later.") from error
            named = f"the download of {file.path}"
            published_digest(file, arrived, named)
            check_whole(file, arrived, named)
            (target / file.path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(arrived, target / file.path)
