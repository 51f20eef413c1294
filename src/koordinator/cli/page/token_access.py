"""Who may see the page of a cluster: whoever shows a bearer token of the cluster, and each what its roles let it see.

The server's own account fills the tables. What of them a viewer may see, the API server says in answer to the viewer's
own token (SelfSubjectAccessReview), and explanations are asked for with that token, too; so nobody sees more here than
with kubectl and koord. Tokens are kept in memory alone, for as long as they are used.

What is no part of the page, such as the metrics of its server, is for whoever may get that path.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from koordinator.api.core import Namespace
from koordinator.base.clock import Clock
from koordinator.cli.explanation import Sources
from koordinator.cli.page.viewer_rights import RightsReader
from koordinator.cli.page.viewers import Viewer
from koordinator.cli.session import Session, open_session
from koordinator.cluster.data_folder import write_private
from koordinator.cluster.kubeconfig_file import kubeconfig
from koordinator.kube import connection
from koordinator.kube.connect import ClientOptions
from koordinator.kube.connection import Connection
from koordinator.kube.delegated_access import is_open
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.informer import Informer
from koordinator.kube.kept_answers import AGAIN, KeptAnswers
from koordinator.kube.pages import PageError, Request
from koordinator.kube.secure_options import PROBES
from koordinator.kube.sender import RateLimiter

RIGHTS_SECONDS: Final = 30.0
"""So soon it is noticed that somebody has a right no more."""
UNCONFIRMED_SECONDS: Final = 300.0
"""For so long rights count that no API server confirms, since none answers."""
MOST_VIEWERS: Final = 200
_FRESH_SECONDS: Final = RIGHTS_SECONDS * 2 / 3
_REFUSED_SECONDS: Final = 10.0
_UNUSED_SECONDS: Final = 300.0
_QUESTIONS_PER_SECOND: Final = 100.0
_QUESTIONS_AT_ONCE: Final = 500
_LONGEST_TOKEN: Final = 16 << 10
_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}
_SIGN_IN: Final = "401: show a token of the cluster: kubectl create token NAME -n NAMESPACE makes one for an account\n"
_PAGE: Final = (*PROBES, "/", "/static/*", "/api/*")
"""What everybody may have, or finds out about its viewer by itself."""


@dataclass(slots=True, eq=False)
class _Known:
    """Somebody whose token the API server knows."""

    token: str = field(repr=False)
    viewer: Viewer
    rights: RightsReader
    stack: AsyncExitStack = field(repr=False)
    confirmed: float
    """When the API server last said what the rights are."""
    used: float
    is_good: bool = True


class TokenAccess:
    """``reached_by`` is how the server itself reaches the API server; ``namespaces`` are those that there are."""

    def __init__(
        self,
        reached_by: ClientOptions,
        sources: Sources,
        namespaces: Informer[Namespace],
        clock: Clock,
        sessions: Callable[[], AbstractAsyncContextManager[Session]] = open_session,
    ) -> None:
        self._reached_by = reached_by
        self._server = connection.resolve(
            reached_by.kubeconfig, reached_by.context, environment=reached_by.environment, root=reached_by.root
        )
        self._sources = sources
        self._namespaces = namespaces
        self._clock = clock
        self._sessions = sessions
        self._limiter = RateLimiter(clock, _QUESTIONS_PER_SECOND, _QUESTIONS_AT_ONCE)
        self._answers = KeptAnswers[bytes, "_Known | None"](clock)
        self._known: dict[bytes, _Known] = {}

    def check_host(self, request: Request) -> None:
        """Any: no cookie is used, and a page of another site does not have the token."""

    async def admit(self, request: Request) -> None:
        """Let in whoever asks for the page, or may get the path. Raises PageError."""
        if is_open(request.path, _PAGE):
            return
        known = await self._viewer(request)
        try:
            allowed = await known.rights.may_get(request.path, request.method.lower())
        except KubeError as error:
            raise _unanswered(error) from error
        if not allowed:
            raise PageError(403, f"403: you lack the right to {request.method.lower()} {request.path}\n")

    async def viewer(self, request: Request) -> Viewer:
        """Whose token it is. Raises PageError: 401 for a token that is nobody's, 429 when too many unknown ones come at
        once, 503 while the API server is away, or there are too many viewers."""
        known = await self._viewer(request)
        return known.viewer

    async def run(self) -> NoReturn:
        """Ask for the rights of those who watch again and again, until cancelled."""
        try:
            while True:
                await self._clock.sleep(RIGHTS_SECONDS - _FRESH_SECONDS)
                await self.refresh()
        finally:
            for key in list(self._known):
                await self._forget(key)

    async def refresh(self) -> None:
        """The rights of those who watch, where they are not fresh; whoever has not come for long is forgotten."""
        now = self._clock.monotonic()
        for key, known in list(self._known.items()):
            if not known.viewer.watches and now - known.used > _UNUSED_SECONDS:
                await self._forget(key)
        # Streams go on while the API server is away: they end by themselves. One that waits does not delay the others.
        watching = [self._ask(key, known.token) for key, known in self._known.items() if known.viewer.watches]
        for error in await asyncio.gather(*watching, return_exceptions=True):
            if isinstance(error, BaseException) and not isinstance(error, PageError):
                raise error

    async def _viewer(self, request: Request) -> _Known:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN:
            raise PageError(401, _SIGN_IN, _CHALLENGE)
        key = hashlib.sha256(token.encode()).digest()
        if key in self._known:
            # Whoever is asked about does not make room for another meanwhile.
            self._known[key].used = self._clock.monotonic()
        known = await self._ask(key, token)
        if known is None:
            raise PageError(401, _SIGN_IN, _CHALLENGE)
        return known

    async def _ask(self, key: bytes, token: str) -> _Known | None:
        """Who it is, with fresh rights; None for nobody. Raises PageError."""
        return await self._answers.get(
            key,
            lambda: self._read(key, token),
            lambda known: _FRESH_SECONDS if known is not None else _REFUSED_SECONDS,
            lambda known: known is not None,
        )

    async def _read(self, key: bytes, token: str) -> _Known | None:
        known = self._known.get(key)
        try:
            if known is None:
                return await self._meet(key, token)
            known.viewer.sight_of = await known.rights.read(self._namespaces.store)
            known.confirmed = self._clock.monotonic()
        except ApiStatusError as error:
            if error.code != 401:
                raise PageError(503, f"503: the API server does not say what you may see: {error}\n", AGAIN) from error
            await self._forget(key)
            return None
        except KubeError as error:
            raise _unanswered(error) from error
        return known

    async def _meet(self, key: bytes, token: str) -> _Known:
        """Somebody new. Nobody else has to go before it is known that the token is somebody's."""
        theirs = replace(self._reached_by, token=token)
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(self._sessions())
            reader = RightsReader(await session.client(theirs), self._sources.scheduler.lease[0], self._limiter)
            viewer = Viewer(
                await reader.read(self._namespaces.store),
                _as_user(self._sources, theirs),
                session,
                partial(self._kubeconfig, token),
            )
            await self._make_room()
            now = self._clock.monotonic()
            known = _Known(token, viewer, reader, stack.pop_all(), now, now)
        viewer.is_admitted = partial(self._is_admitted, known)
        self._known[key] = known
        return known

    async def _make_room(self) -> None:
        """For one more: whoever has not come for the longest time goes, though nobody who watches."""
        while len(self._known) >= MOST_VIEWERS:
            idle = [key for key, known in self._known.items() if not known.viewer.watches]
            if not idle:
                raise PageError(503, f"503: {MOST_VIEWERS} viewers watch this page already\n", AGAIN)
            await self._forget(min(idle, key=lambda key: self._known[key].used))

    def _is_admitted(self, known: _Known) -> bool:
        return known.is_good and self._clock.monotonic() - known.confirmed < UNCONFIRMED_SECONDS

    async def _forget(self, key: bytes) -> None:
        self._answers.drop(key)
        known = self._known.pop(key, None)
        if known is not None:
            known.is_good = False
            await known.stack.aclose()

    def _kubeconfig(self, token: str, folder: Path) -> Sequence[str]:
        path = folder / "kubeconfig"
        write_private(path, kubeconfig(self._server.endpoint.url, _authority(self._server), token).encode())
        return ("--kubeconfig", str(path))


def _unanswered(error: KubeError) -> PageError:
    return PageError(503, f"503: the API server does not answer: {error}\n", AGAIN)


def _authority(server: Connection) -> bytes:
    """Of whom the certificate of the API server is, as PEM; nothing where the machine knows it."""
    if server.tls is None:
        return b""
    return server.tls.authority or (Path(server.tls.authority_file).read_bytes() if server.tls.authority_file else b"")


def _as_user(sources: Sources, options: ClientOptions) -> Sources:
    """The same cluster and programs, asked with the user's token."""
    assert sources.cluster is not None
    return replace(
        sources,
        scheduler=replace(sources.scheduler, client=options),
        manager=replace(sources.manager, client=options),
        descheduler=replace(sources.descheduler, client=options),
        cluster=replace(sources.cluster, client=options),
    )
