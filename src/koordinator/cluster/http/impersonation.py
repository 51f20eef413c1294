"""``kubectl --as``: refused, since this server knows one user, and nobody may act as another without its leave.

To ignore the headers would be worse: what is tried out as a user of few rights would be done by the administrator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from koordinator.cluster.errors import ApiError
from koordinator.cluster.http.authentication import USER

_PREFIX: Final = b"impersonate-"
_LENGTH: Final = len(_PREFIX)
_EXTRA: Final = "extra-"
_KINDS: Final = {"user": "users", "group": "groups", "uid": "uids"}


def check_no_impersonation(raw_headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Takes headers as they came: every request pays for this look at all names. Raises ApiError 403."""
    for name, value in raw_headers:
        if name[_LENGTH - 1 : _LENGTH] == b"-" and name[:_LENGTH].lower() == _PREFIX:
            _refuse(name[_LENGTH:].decode(errors="replace").lower(), value.decode(errors="replace"))


def _refuse(what: str, wanted: str) -> None:
    kind = f"userextras/{what.removeprefix(_EXTRA)}" if what.startswith(_EXTRA) else _KINDS.get(what, "")
    # An empty user is none, and other names mean nothing to the real server either.
    if not kind or (what == "user" and not wanted):
        return
    why = f'this server does not support impersonation: it knows no user but "{USER}"'
    raise ApiError(403, "Forbidden", f'{kind} "{wanted}" is forbidden: {why}', {"name": wanted, "kind": kind})
