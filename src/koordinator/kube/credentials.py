"""The credentials of each request: none, a fixed token or password, or a token file that Kubernetes rotates.

Exec plugins are in ``exec_credentials``.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from koordinator.base.clock import Clock
from koordinator.kube.errors import CredentialError
from koordinator.kube.kubeconfig import User

logger = logging.getLogger(__name__)

# The kubelet replaces a projected token at 80 % of its lifetime, which is at least 10 minutes.
_REREAD_SECONDS = 50.0


class Credentials(Protocol):
    """The current value of the Authorization header."""

    async def authorization(self) -> str:
        """Return the header; empty without credentials. Raises CredentialError if those configured are unavailable."""
        ...

    async def renew(self, refused: str) -> bool:
        """After a 401 for the header ``refused``, return whether ``authorization`` may now return another one."""
        ...


class FixedCredentials:
    """A header that never changes; empty if the client authenticates by certificate or is anonymous."""

    def __init__(self, authorization: str = "") -> None:
        self._authorization = authorization

    async def authorization(self) -> str:
        return self._authorization

    async def renew(self, refused: str) -> bool:
        return False


def bearer(token: str) -> str:
    """Return the header for a token."""
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    """Return the header for a user name and password."""
    return "Basic " + b64encode(f"{username}:{password}".encode()).decode()


class TokenFile:
    """A token in a file that another process rotates. ``initial`` is used until the file has been read once."""

    def __init__(self, path: Path, clock: Clock, initial: str = "") -> None:
        self._path = path
        self._clock = clock
        self._authorization = bearer(initial) if initial else ""
        self._read_at: float | None = None

    async def authorization(self) -> str:
        now = self._clock.monotonic()
        if self._read_at is None or now - self._read_at >= _REREAD_SECONDS:
            self._read(now)
        return self._authorization

    async def renew(self, refused: str) -> bool:
        if self._authorization == refused:
            self._read(self._clock.monotonic())
        return self._authorization != refused

    def _read(self, now: float) -> None:
        self._read_at = now
        try:
            token = self._path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            self._keep_old(f"token file {self._path}: {getattr(error, 'strerror', None) or 'not text'}")
            return
        if token:
            self._authorization = bearer(token)
        else:
            self._keep_old(f"token file {self._path} is empty")

    def _keep_old(self, problem: str) -> None:
        """Keep the previous token, which most likely is still valid; CredentialError if there is none."""
        if not self._authorization:
            self._read_at = None
            raise CredentialError(problem)
        logger.warning("%s; the token read earlier stays in use", problem)


def fixed_credentials(user: User) -> FixedCredentials:
    """Return the credentials of the user's token or password, whichever is set."""
    if user.token:
        return FixedCredentials(bearer(user.token.strip()))
    if user.username or user.password:
        return FixedCredentials(basic(user.username, user.password))
    return FixedCredentials()


def impersonation_headers(user: User) -> list[tuple[str, str]]:
    """Return the headers of ``as``, ``as-uid``, ``as-groups`` and ``as-user-extra``."""
    if not user.impersonate:
        return []
    headers = [("Impersonate-User", user.impersonate)]
    if user.impersonate_uid:
        headers.append(("Impersonate-Uid", user.impersonate_uid))
    headers += [("Impersonate-Group", group) for group in user.impersonate_groups]
    headers += [
        (f"Impersonate-Extra-{quote(key, safe='')}", value)
        for key, values in user.impersonate_extra.items()
        for value in values
    ]
    return headers
