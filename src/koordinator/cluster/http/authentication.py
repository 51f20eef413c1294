"""Who sends a request: the client certificate, or the bearer token, or nobody in particular."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from aiohttp import web

from koordinator.base.errors import ConfigurationError
from koordinator.cluster.access.identity import (
    ADMIN,
    ANONYMOUS,
    API_AUDIENCE,
    Authenticated,
    User,
    authenticated,
)
from koordinator.cluster.errors import unauthorized

USER: Final = web.RequestKey("user", User)
"""Under this key a request has who sends it."""
_PUBLIC: Final = ("/healthz", "/livez", "/readyz", "/version")
_EXTRA_SPACE: Final = "the provided Authorization header contains extra space before the bearer token, and is ignored"


class TokenVerifier(Protocol):
    """Knows some of the tokens that there are."""

    def verify(self, token: str, audiences: Sequence[str]) -> Authenticated | None:
        """Whose token it is; None when it is none of these, or not for any of ``audiences``."""
        ...


class StaticTokens:
    """Tokens that were named when the server was started, kept as digests.

    Looking up a digest takes a time that says nothing about how much of a guess was right.
    """

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self._users = {_digest(token): user for token, user in tokens.items()}

    def verify(self, token: str, audiences: Sequence[str]) -> Authenticated | None:
        user = self._users.get(_digest(token))
        return Authenticated(user, (API_AUDIENCE,)) if user is not None and API_AUDIENCE in audiences else None


def _digest(token: str) -> bytes:
    # Bytes of a header that are no UTF-8 come as lone surrogates, which only this encodes.
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


class Authenticator:
    """``anonymous``: requests without a credential are those of system:anonymous, whatever they are about; else only
    those about the health and the version of the server are."""

    def __init__(self, verifiers: Sequence[TokenVerifier], *, anonymous: bool = False) -> None:
        self._verifiers = verifiers
        self._anonymous = anonymous

    @classmethod
    def of(cls, token: str) -> Authenticator:
        """Knows the administrator alone."""
        return cls((StaticTokens({token: ADMIN}),))

    def authenticate(self, request: web.BaseRequest) -> User:
        """Raises ApiError 401."""
        user = _of_certificate(request)
        if user is not None:
            return user
        authorization = request.headers.get("Authorization", "")
        scheme, *rest = authorization.strip().split(" ", 2)
        if scheme.lower() == "bearer" and rest and rest[0]:
            found = self.verify(rest[0], (API_AUDIENCE,))
            if found is not None:
                return found.user
        elif self._anonymous or (request.path.startswith(_PUBLIC) and not authorization):
            return ANONYMOUS
        error = unauthorized()
        if scheme.lower() == "bearer" and rest[:1] == [""]:
            error.warnings = (_EXTRA_SPACE,)
        raise error

    def verify(self, token: str, audiences: Sequence[str]) -> Authenticated | None:
        """Whose token it is, and for which of ``audiences``; None when nobody's."""
        for verifier in self._verifiers:
            found = verifier.verify(token, audiences)
            if found is not None:
                return found
        return None


def _of_certificate(request: web.BaseRequest) -> User | None:
    """The subject of the certificate that the client has shown; the handshake has verified it."""
    transport = request.transport
    certificate: Mapping[str, Any] | None = transport.get_extra_info("peercert") if transport is not None else None
    if not certificate:
        return None
    parts = [part for names in certificate["subject"] for part in names]
    name = next((value for key, value in parts if key == "commonName"), "")
    return authenticated(name, tuple(value for key, value in parts if key == "organizationName")) if name else None


# The file of kube-apiserver's flag of the same name: a line of TOKEN,USER,UID[,"GROUP,GROUP…"] for each token.


_FLAG: Final = "--token-auth-file"
_COLUMNS: Final = "TOKEN,USER,UID[,GROUPS]"


def read_token_file(path: Path) -> dict[str, User]:
    """Token -> user. Raises ConfigurationError, which names the line."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(_FLAG, str(path), f"the file cannot be read: {error}") from error
    users: dict[str, User] = {}
    for number, row in enumerate(csv.reader(lines, skipinitialspace=True), 1):
        if not row:
            continue
        columns = [column.strip() for column in row]
        if len(columns) < 3 or not columns[0] or not columns[1]:
            raise ConfigurationError(
                _FLAG, str(path), f"line {number} is not {_COLUMNS}: a token and a user are needed"
            )
        if columns[0] in users:
            raise ConfigurationError(_FLAG, str(path), f"line {number} has the token of an earlier line")
        groups = [group.strip() for group in columns[3].split(",")] if len(columns) > 3 else []
        users[columns[0]] = authenticated(columns[1], tuple(filter(None, groups)), columns[2])
    return users
