"""Who we say we are on each request: nothing, a fixed token or password, or a token file that Kubernetes rotates.

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

# The kubelet replaces a projected token at 80 % of its life, which is 10 minutes at the least.
_REREAD_SECONDS = 50.0


class Credentials(Protocol):
    """The value of the Authorization header, kept current."""

    async def authorization(self) -> str:
        """Empty when requests carry none. Raises CredentialError when there should be one and there is not."""
        ...

    async def renew(self, refused: str) -> bool:
        """After a 401 for ``refused``: whether ``authorization`` is worth asking again."""
        ...


class FixedCredentials:
    """A header that never changes; empty when a client certificate, or nobody, signs in."""

    def __init__(self, authorization: str = "") -> None:
        self._authorization = authorization

    async def authorization(self) -> str:
        return self._authorization

    async def renew(self, refused: str) -> bool:
        return False


def bearer(token: str) -> str:
    """The header of a token."""
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    """The header of a user name and password."""
    return "Basic " + b64encode(f"{username}:{password}".encode()).decode()


class TokenFile:
    """A token that something else renews in a file. ``initial`` serves until the file has been read once."""

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
        """A token that was good a minute ago most likely still is."""
        if not self._authorization:
            self._read_at = None
            raise CredentialError(problem)
        logger.warning("%s; the token read earlier stays in use", problem)


def fixed_credentials(user: User) -> FixedCredentials:
    """The user's token or password, whichever is set."""
    if user.token:
        return FixedCredentials(bearer(user.token.strip()))
    if user.username or user.password:
        return FixedCredentials(basic(user.username, user.password))
    return FixedCredentials()


def impersonation_headers(user: User) -> list[tuple[str, str]]:
    """The headers of ``as``, ``as-uid``, ``as-groups`` and ``as-user-extra``."""
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
