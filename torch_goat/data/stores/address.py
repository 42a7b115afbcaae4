"""Addresses of databases, which may hold a password that no message shows."""

import re
from urllib.parse import unquote

_IN_FRONT = re.compile(r"(://[^:/@?]*):(.*)@")  # to the last @: one that is not escaped is taken for the password's
_BEHIND = re.compile(r"([?&\s]password=)([^&\s]*)")


def masked(address: str) -> str:
    """An address as messages show it."""
    return _BEHIND.sub(r"\1***", _IN_FRONT.sub(r"\1:***@", address))


def one_line(error: BaseException, address: str) -> str:
    """What an error of a database's driver says first, without the password of the address."""
    lines = str(error).strip().splitlines()
    text = lines[0].strip().rstrip(".") if lines else type(error).__name__
    secrets = {match[2] for pattern in (_IN_FRONT, _BEHIND) for match in pattern.finditer(address) if match[2]}
    for secret in sorted(secrets | set(map(unquote, secrets)), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
