"""Who may see the page of a cluster: whoever shows a bearer token of the cluster, and each what its roles let it see.

The server's own account fills the tables. What of them a viewer may see, the API server says in answer to the viewer's
own token (SelfSubjectAccessReview), and explanations are asked for with that token, too; so nobody sees more here than
with kubectl and koord. Tokens are kept in memory alone, for as long as they are used.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from koordinator.api.core import Namespace
from koordinator.api.kinds import SELF_SUBJECT_ACCESS_REVIEWS, SERVICE_ACCOUNTS, Kind
from koordinator.api.reviews import ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec
from koordinator.base.clock import Clock
from koordinator.cli.explain_source import ACCOUNT
from koordinator.cli.explanation import Sources
from koordinator.cli.page.board import Sight
from koordinator.cli.page.feed import READS
from koordinator.cli.page.viewers import Viewer
from koordinator.cli.session import open_session
from koordinator.cluster.data_folder import write_private
from koordinator.cluster.kubeconfig_file import kubeconfig
from koordinator.kube import connection
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connected
from koordinator.kube.connection import Connection
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.informer import Informer
from koordinator.kube.pages import PageError, Request

RIGHTS_SECONDS: Final = 30.0
_MOST_VIEWERS: Final = 200
_MOST_NAMESPACES: Final = 200
_AT_ONCE: Final = 10
_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}
_SIGN_IN: Final = "401: show a token of the cluster: kubectl create token NAME -n NAMESPACE makes one for an account\n"
_BY_PROGRAMS: Final = ("gangs", "audit")
"""Tables that the programs know: they answer whoever may have a token of the account koord-explain."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What somebody may see, by table. Equal rights are equal, so that what they see is made once."""

    sights: tuple[tuple[str, Sight], ...]

    def __call__(self, table: str) -> Sight:
        return dict(self.sights).get(table, Sight())


@dataclass(slots=True)
class _Known:
    """Somebody whose token the API server knows."""

    token: str = field(repr=False)
    viewer: Viewer
    client: KubeClient
    stack: AsyncExitStack
    asked: float
    """When the rights were asked for."""
    used: float
    is_good: bool = True


class TokenAccess:
    """``reached_by`` is how the server itself reaches the API server; ``namespaces`` are those that there are."""

    def __init__(
        self, reached_by: ClientOptions, sources: Sources, namespaces: Informer[Namespace], clock: Clock
    ) -> None:
        self._reached_by = reached_by
        self._server = connection.resolve(
            reached_by.kubeconfig, reached_by.context, environment=reached_by.environment, root=reached_by.root
        )
        self._sources = sources
        self._namespaces = namespaces
        self._clock = clock
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[_Known]] = {}

    def check_host(self, request: Request) -> None:
        """Any: no cookie is used, and a page of another site does not have the token."""

    async def viewer(self, request: Request) -> Viewer:
        """Whose token it is. Raises PageError: 401 for a token that is nobody's, 503 while the API server is away."""
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token:
            raise PageError(401, _SIGN_IN, _CHALLENGE)
        key = hashlib.sha256(token.encode()).digest()
        known = self._known.get(key)
        if known is None:
            task = self._asking.get(key)
            if task is None:
                task = asyncio.create_task(self._meet(key, token), name="sign in")
                self._asking[key] = task
                task.add_done_callback(lambda done: self._met(key, done))
            # A viewer who goes does not take the answer from another tab.
            known = await asyncio.shield(task)
        known.used = self._clock.monotonic()
        self._known.move_to_end(key)
        if known.used - known.asked > RIGHTS_SECONDS:
            await self._ask_again(key, known)
        return known.viewer

    async def run(self) -> NoReturn:
        """Ask for the rights of those who watch again and again, until cancelled."""
        try:
            while True:
                await self._clock.sleep(RIGHTS_SECONDS)
                for key, known in list(self._known.items()):
                    if self._clock.monotonic() - known.used > 10 * RIGHTS_SECONDS and not known.viewer.watches:
                        await self._forget(key)
                    elif known.viewer.watches:
                        try:
                            await self._ask_again(key, known)
                        except PageError:
                            continue  # the stream ends by itself, or goes on until the API server is back
        finally:
            for key in list(self._known):
                await self._forget(key)

    async def _meet(self, key: bytes, token: str) -> _Known:
        while len(self._known) >= _MOST_VIEWERS:
            await self._forget(next(iter(self._known)))
        theirs = replace(self._reached_by, token=token)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(connected(theirs))
            session = await stack.enter_async_context(open_session())
            rights = await self._rights(client)
            viewer = Viewer(rights, _as_user(self._sources, theirs), session, partial(self._kubeconfig, token))
            now = self._clock.monotonic()
            known = _Known(token, viewer, client, stack.pop_all(), now, now)
        viewer.is_admitted = lambda: known.is_good
        self._known[key] = known
        return known

    def _kubeconfig(self, token: str, folder: Path) -> Sequence[str]:
        path = folder / "kubeconfig"
        write_private(path, kubeconfig(self._server.endpoint.url, _authority(self._server), token).encode())
        return ("--kubeconfig", str(path))

    def _met(self, key: bytes, task: asyncio.Task[_Known]) -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # whoever still waits gets it

    async def _ask_again(self, key: bytes, known: _Known) -> None:
        try:
            known.viewer.sight_of = await self._rights(known.client)
            known.asked = self._clock.monotonic()
        except PageError as error:
            if error.response.status == 401:
                await self._forget(key)
            raise

    async def _forget(self, key: bytes) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            known.is_good = False
            await known.stack.aclose()

    async def _rights(self, client: KubeClient) -> Rights:
        """Of each table. Raises PageError."""
        questions = _Questions(client)
        try:
            sights = {name: await self._sight(questions, kinds) for name, kinds in READS.items()}
            programs = ResourceAttributes(
                verb="create",
                resource=SERVICE_ACCOUNTS.plural,
                subresource="token",
                namespace=self._sources.scheduler.lease[0],
                name=ACCOUNT,
            )
            asks = await questions.may(programs)
        except ApiStatusError as error:
            if error.code == 401:
                raise PageError(401, _SIGN_IN, _CHALLENGE) from error
            raise PageError(503, f"503: the API server does not say what you may see: {error}\n") from error
        except KubeError as error:
            raise PageError(503, f"503: the API server does not answer: {error}\n") from error
        lacks = "" if asks else f"you lack the right to {_words(programs)}, in whose name the programs are asked"
        sights |= dict.fromkeys(_BY_PROGRAMS, Sight(everywhere=asks, lacks=lacks))
        return Rights(tuple(sorted(sights.items())))

    async def _sight(self, questions: _Questions, kinds: Sequence[Kind[Any]]) -> Sight:
        """All, where all of the kinds may be listed; else some namespaces, where the rows are of one kind of object."""
        asked = [_list_of(kind) for kind in kinds]
        missing = [each for each in asked if not await questions.may(each)]
        if not missing:
            return Sight()
        lacks = f"you lack the right to {' and to '.join(map(_words, missing))}"
        if len(kinds) > 1 or not kinds[0].namespaced:
            return Sight(everywhere=False, lacks=lacks)
        names = sorted(self._namespaces.store)[:_MOST_NAMESPACES]
        may = await questions.may_each(_list_of(kinds[0], name) for name in names)
        found = frozenset(name for name, allowed in zip(names, may, strict=True) if allowed)
        return Sight(everywhere=False, namespaces=found, lacks=lacks)


class _Questions:
    """What somebody may do, each asked once."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._answers: dict[ResourceAttributes, bool] = {}

    async def may(self, what: ResourceAttributes) -> bool:
        """Raises KubeError."""
        if what not in self._answers:
            body = SelfSubjectAccessReview(spec=SelfSubjectAccessReviewSpec(resource_attributes=what))
            async with self._slots:
                status = (await self._client.create(SELF_SUBJECT_ACCESS_REVIEWS, body)).status
            self._answers[what] = status.allowed and not status.denied
        return self._answers[what]

    async def may_each(self, what: Iterable[ResourceAttributes]) -> list[bool]:
        return await asyncio.gather(*map(self.may, what))


def _list_of(kind: Kind[Any], namespace: str = "") -> ResourceAttributes:
    return ResourceAttributes(verb="list", group=kind.group, resource=kind.plural, namespace=namespace)


def _words(what: ResourceAttributes) -> str:
    """``list nodemetrics.slo.koordinator.sh``."""
    resource = f"{what.resource}.{what.group}" if what.group else what.resource
    resource += f"/{what.subresource}" if what.subresource else ""
    name = f" of {what.namespace}/{what.name}" if what.name else ""
    return f"{what.verb} {resource}{name}"


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
