"""Settings as frozen dataclasses and TOML files, checked key by key.

The dataclass is the schema: its fields are the keys, with their types, and its ``__post_init__`` raises ``ValueError``
for invalid values. Fields may be ``bool``, ``int``, ``float``, ``str``, ``Literal``, tuples of these, dataclasses, and
dictionaries from names to any of them.
"""

import dataclasses
import difflib
import json
import os
import re
import tomllib
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
_NESTED = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){40}""")  # a key of as many parts
_WANTED = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_hints = cache(get_type_hints)  # which parses the annotations in every call


class SettingsError(ValueError):
    """A setting that is unknown, of a wrong type or invalid."""


def printable(text: str) -> str:
    """Text for a terminal: control characters, also those that reverse the direction of text, become ``\\u001b``."""
    return re.sub(r"[^\t\n -~\xa0-\u2029\u202f-\u2065\u206a-\U0010ffff]", lambda one: f"\\u{ord(one[0]):04x}", text)


def nearest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'heads'?"``, or a list of all known names if none is similar."""
    known = sorted(filter(None, known))
    close = difflib.get_close_matches(name, known, n=1)
    if not known:
        return "; there is none."
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}."


def check_known(what: str, name: str, known: Collection[str]) -> None:
    """Refuses an unknown name."""
    if name not in known:
        raise SettingsError(f"there is no {what} {name!r}{nearest(name, known)}")


def read(kind: type[T], path: str | Path) -> T:
    """Reads a dataclass from a TOML file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        if _NESTED.search(text):  # takes quadratic time to parse
            raise RecursionError("a key has too many parts")
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: not a TOML file: {error}.") from None
    return parse(kind, table, str(path))


def parse(kind: type[T], table: Mapping[str, Any], where: str, section: str = "") -> T:
    """Makes a dataclass from a TOML table, whose missing keys keep their defaults; errors name the file ``where``."""
    values = check_some(kind, table, where, section)
    for field in dataclasses.fields(cast(Any, kind)):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            raise SettingsError(f"{where}: the key {f'{section}.{field.name}'.lstrip('.')!r} is missing.")
    try:
        return kind(**values)
    except ValueError as error:
        raise SettingsError(f"{where}: {f'[{section}] ' if section else ''}{error}") from None


def check_some(kind: Any, table: Any, where: str, section: str = "") -> dict[str, Any]:
    """Checks the keys and types of a table for a dataclass, which need not be complete, and converts its values."""
    if not isinstance(table, Mapping):
        raise SettingsError(f"{where}: {section} must be a table of settings, got {table!r}.")
    values = {}
    for key, item in table.items():
        path = f"{section}.{key}" if section else key
        if key not in _hints(kind):
            raise SettingsError(f"{where}: unknown key {path!r}{nearest(key, _hints(kind))}")
        values[key] = _value(_hints(kind)[key], item, where, path)
    return values


def check_fields(value: Any) -> None:
    """Checks the types of a dataclass's fields as :func:`parse` does, for use in its ``__post_init__``.

    Lists become tuples, NumPy numbers plain numbers, and paths texts, as in a file.
    """
    kind: Any = type(value)
    for name, hint in _hints(kind).items():
        item = _plain(getattr(value, name))
        if item is not None and not dataclasses.is_dataclass(item):
            item = _value(hint, item, kind.__name__, name)
        object.__setattr__(value, name, item)


def override(value: T, assignments: Iterable[str]) -> T:
    """Copies a dataclass with some keys set, each as ``"heads=4"`` or ``"model.heads=4"``.

    The section can be left out if the key is unique in the dataclass. The values are checked together, so that their
    order does not matter.
    """
    assignments = list(assignments)
    table = to_table(value)
    for assignment in assignments:
        key, found, text = assignment.partition("=")
        if not found:
            raise SettingsError(f"{assignment!r} sets nothing; write it as key=value.")
        *sections, last = _find(value, key.strip())
        place = table
        for section in sections:
            place = place[section]
        place[last] = plain_value(text.strip())
    return parse(type(value), table, " ".join(assignments))


def plain_value(text: str) -> Any:
    """A value as in TOML; any other text stands for itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def sets(assignment: str, key: str) -> bool:
    """Whether an assignment sets a key, with or without its section."""
    return assignment.partition("=")[0].strip().rpartition(".")[2] == key


def dumps(value: Any) -> str:
    """Formats a dataclass as TOML, from which :func:`read` gives an equal one."""
    return "\n".join(_lines(to_table(value), ())).strip() + "\n"


def to_table(value: Any) -> Any:
    """Converts a dataclass to dictionaries, lists and plain values, without fields that are ``None``."""
    if dataclasses.is_dataclass(value):
        items = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {key: to_table(item) for key, item in items if item is not None}
    if isinstance(value, Mapping):
        return {key: to_table(item) for key, item in value.items()}
    return [to_table(item) for item in value] if isinstance(value, tuple | list) else value


def leaves(value: Any, section: str = "") -> Iterator[tuple[str, Any]]:
    """The plain values of a dataclass or of a table of :func:`to_table`, with their dotted paths."""
    keys = value if isinstance(value, Mapping) else [field.name for field in dataclasses.fields(value)]
    for key in keys:
        item = value[key] if isinstance(value, Mapping) else getattr(value, key)
        if isinstance(item, Mapping) or dataclasses.is_dataclass(item):
            yield from leaves(item, f"{section}{key}.")
        else:
            yield f"{section}{key}", item


def _plain(item: Any) -> Any:
    if isinstance(item, list | tuple):
        return tuple(map(_plain, item))
    if isinstance(item, os.PathLike):
        return os.fspath(item)
    return item.item() if type(item).__module__ == "numpy" else item


def _value(hint: Any, item: Any, where: str, path: str) -> Any:
    """Checks a value against the type of its field and converts it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):  # X | None; None is a key that is left out
        return _value(next(one for one in inner if one is not type(None)), item, where, path)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return parse(hint, item, where, path)
    if origin is dict and isinstance(item, Mapping):
        return {key: _value(inner[1], one, where, f"{path}.{key}") for key, one in item.items()}
    if origin is tuple:
        return tuple(_value(inner[0], one, where, path) for one in (item if isinstance(item, list | tuple) else [item]))
    if origin is Literal:
        if not any(item == one and type(item) is type(one) for one in inner):
            raise SettingsError(f"{where}: {path} = {item!r} is unknown{nearest(str(item), map(str, inner))}")
        return item
    if hint is Any:
        return item
    if hint is float and type(item) is int:
        return float(item)
    if hint not in _WANTED or type(item) is not hint:
        raise SettingsError(f"{where}: {path} must be {_WANTED.get(hint, 'a table')}, got {item!r}.")
    return item


def _find(value: Any, key: str) -> list[str]:
    """Finds a key in a dataclass by its dotted path or the last part of it."""
    paths = [path for path, _ in leaves(value)]
    found = [key] if key in paths else [path for path in paths if path.endswith(f".{key}")]
    if len(found) == 1:
        return found[0].split(".")
    if found:
        raise SettingsError(f"{key!r} is ambiguous; choose from {', '.join(found)}.")
    raise SettingsError(f"unknown key {key!r}{nearest(key, {path.rpartition('.')[2] for path in paths})}")


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {key: item for key, item in table.items() if not isinstance(item, Mapping)}
    if path and (plain or not table):
        yield f"\n[{'.'.join(map(_key, path))}]"
    for key, item in plain.items():
        yield f"{_key(key)} = {_literal(item)}"
    for key, item in table.items():
        if isinstance(item, Mapping):
            yield from _lines(item, (*path, key))


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else _literal(key)


def _literal(item: Any) -> str:
    if isinstance(item, list):
        return f"[{', '.join(map(_literal, item))}]"
    if isinstance(item, Mapping):  # in a list
        return f"{{ {', '.join(f'{_key(key)} = {_literal(one)}' for key, one in item.items())} }}"
    if isinstance(item, float):
        return repr(item)  # also nan, inf and -inf
    return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")
