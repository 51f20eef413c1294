"""One bearer token opens everything; without it only liveness and the version are told."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Final

from koordinator.cluster.errors import ApiError, unauthorized

USER: Final = "admin"
GROUPS: Final = ("system:masters", "system:authenticated")
_PUBLIC: Final = ("/healthz", "/livez", "/readyz", "/version")
_EXTRA_SPACE: Final = "the provided Authorization header contains extra space before the bearer token, and is ignored"
_IMPERSONATE: Final = b"impersonate-"
_IMPERSONATE_LENGTH: Final = len(_IMPERSONATE)
_USER_EXTRA: Final = "extra-"
_IMPERSONATED_KINDS: Final = {"user": "users", "group": "groups", "uid": "uids"}


class TokenAuthenticator:
    """Compares in constant time, so that answers do not tell how much of a guess was right."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def is_token(self, token: str) -> bool:
        # Bytes of a header that are no UTF-8 come as lone surrogates, which only this encodes.
        return hmac.compare_digest(token.encode(errors="surrogatepass"), self._token)

    def check(self, path: str, authorization: str) -> None:
        """Raises ApiError 401."""
        scheme, *rest = authorization.strip().split(" ", 2)
        if rest and scheme.lower() == "bearer" and self.is_token(rest[0]):
            return
        if path.startswith(_PUBLIC) and not authorization:
            return
        error = unauthorized()
        if scheme.lower() == "bearer" and rest[:1] == [""]:
            error.warnings = (_EXTRA_SPACE,)
        raise error


def check_no_impersonation(raw_headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse ``kubectl --as``: this server knows one user, and nobody may act as another without its leave.

    To ignore the headers would be worse: what is tried out as a user of few rights would be done by the administrator.
    Takes headers as they came: every request pays for this look at all names. Raises ApiError 403.
    """
    for name, value in raw_headers:
        if (
            name[_IMPERSONATE_LENGTH - 1 : _IMPERSONATE_LENGTH] == b"-"
            and name[:_IMPERSONATE_LENGTH].lower() == _IMPERSONATE
        ):
            _refuse(name[_IMPERSONATE_LENGTH:].decode(errors="replace").lower(), value.decode(errors="replace"))


def _refuse(what: str, wanted: str) -> None:
    kind = (
        f"userextras/{what.removeprefix(_USER_EXTRA)}"
        if what.startswith(_USER_EXTRA)
        else _IMPERSONATED_KINDS.get(what, "")
    )
    # An empty user is none, and other names mean nothing to the real server either.
    if not kind or (what == "user" and not wanted):
        return
    why = f'this server does not support impersonation: it knows no user but "{USER}"'
    raise ApiError(403, "Forbidden", f'{kind} "{wanted}" is forbidden: {why}', {"name": wanted, "kind": kind})
