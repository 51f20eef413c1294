"""Who sees what of a cluster by which token: what is asked of the API server, how often, and who has to go."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from multidict import CIMultiDict

from koordinator.api.reviews import SelfSubjectAccessReview, SubjectAccessReviewStatus
from koordinator.base.clock import ManualClock
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_source import ProgramEndpoint
from koordinator.cli.explanation import Sources
from koordinator.cli.page.token_access import MOST_VIEWERS, RIGHTS_SECONDS, UNCONFIRMED_SECONDS, TokenAccess
from koordinator.cli.page.viewer_rights import NAMESPACES_AT_ONCE
from koordinator.cli.page.viewers import Viewer
from koordinator.cluster.kubeconfig_file import kubeconfig
from koordinator.kube.connect import ClientOptions
from koordinator.kube.connection import resolve
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.pages import PageError, Request

Allowed = Callable[[str, str, str], bool]
"""The token, the resource or the path, and the namespace -> whether."""


class Server:
    """Of the API: tokens are good that begin with ``good``."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.allowed: Allowed = lambda token, what, namespace: True
        self.asked: list[tuple[str, str, str]] = []
        self.open_sessions = 0
        self.is_away = False

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        async def client(options: ClientOptions) -> Any:
            return SimpleNamespace(create=lambda kind, body: self.review(options.token, body))

        self.open_sessions += 1
        try:
            yield SimpleNamespace(client=client)
        finally:
            self.open_sessions -= 1

    async def review(self, token: str, body: SelfSubjectAccessReview) -> SelfSubjectAccessReview:
        resource, path = body.spec.resource_attributes, body.spec.non_resource_attributes
        what = resource.resource if resource is not None else path.path if path is not None else ""
        namespace = resource.namespace if resource is not None else ""
        self.asked.append((token, what, namespace))
        await asyncio.sleep(0)
        if self.is_away:
            raise TransportError("nobody is there")
        if not token.startswith("good") or token in self.gone:
            raise ApiStatusError(401, "Unauthorized", "Unauthorized")
        return SelfSubjectAccessReview(status=SubjectAccessReviewStatus(self.allowed(token, what, namespace)))


class Bench:
    def __init__(self, folder: Path) -> None:
        self.server, self.clock = Server(), ManualClock()
        self.namespaces: dict[str, None] = {}
        path = folder / "kubeconfig"
        path.write_text(kubeconfig("https://api.example:6443", b"authority", "of the page itself"))
        options = ClientOptions(kubeconfig=str(path))
        endpoint = ProgramEndpoint(None, options, ("koordinator-system", "koord-scheduler"), 1, folder)
        sources = Sources(endpoint, endpoint, endpoint, Cluster("the cluster", options))
        informer = cast("Any", SimpleNamespace(store=self.namespaces))
        self.access = TokenAccess(options, sources, informer, self.clock, cast("Any", self.server.session))

    async def viewer(self, token: str) -> Viewer:
        return await self.access.viewer(request("/api/stream", token))

    async def status(self, token: str) -> int:
        return await status_of(self.viewer(token))


def request(path: str, token: str) -> Request:
    return Request.to("GET", path, CIMultiDict({"Authorization": f"Bearer {token}"} if token else {}))


async def status_of(asked: Awaitable[object]) -> int:
    try:
        await asked
    except PageError as error:
        return error.response.status
    return 200


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[Bench], Awaitable[None]]], None]:
    def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
        async def whole() -> None:
            await scenario(Bench(tmp_path))

        asyncio.run(whole())

    return run


Play = Callable[[Callable[[Bench], Awaitable[None]]], None]


def test_tokens_that_nobody_has_cost_the_api_server_little(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.status("good") == 200
        bench.server.asked.clear()
        found = await asyncio.gather(*(bench.status(f"bad-{number}") for number in range(500)))
        assert (found.count(401), found.count(429)) == (49, 451)
        assert len(bench.server.asked) == 49
        assert bench.server.open_sessions == 1
        await bench.clock.advance(RIGHTS_SECONDS)
        await asyncio.gather(*(bench.status(f"other-{number}") for number in range(500)))
        assert await bench.status("good") == 200

    play(scenario)


def test_nobody_has_to_go_for_a_token_that_nobody_has(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        viewers = []
        for number in range(MOST_VIEWERS):
            await bench.clock.advance(1)
            viewers.append(await bench.viewer(f"good-{number}"))
        assert await bench.status("bad") == 401
        assert all(each.is_admitted() for each in viewers)

    play(scenario)


def test_whoever_has_not_come_for_longest_makes_room_and_nobody_who_watches(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        viewers = []
        for number in range(MOST_VIEWERS):
            await bench.clock.advance(1)
            viewers.append(await bench.viewer(f"good-{number}"))
            viewers[-1].watches = 1
        assert await bench.status("good") == 503
        viewers[7].watches = viewers[9].watches = 0
        assert await bench.status("good") == 200
        assert [number for number, each in enumerate(viewers) if not each.is_admitted()] == [7]
        assert bench.server.open_sessions == MOST_VIEWERS

    play(scenario)


def test_many_requests_of_one_viewer_ask_once(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        await asyncio.gather(*(bench.viewer("good") for _ in range(20)))
        asked = len(bench.server.asked)
        assert asked == len(set(bench.server.asked))
        await bench.clock.advance(RIGHTS_SECONDS)
        await asyncio.gather(*(bench.viewer("good") for _ in range(20)))
        assert len(bench.server.asked) == 2 * asked

    play(scenario)


def test_a_token_that_was_taken_back_ends_what_it_has_begun(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        running = asyncio.ensure_future(bench.access.run())
        viewer = await bench.viewer("good")
        viewer.watches = 1
        await bench.clock.advance(RIGHTS_SECONDS)
        assert viewer.is_admitted()
        bench.server.gone.add("good")
        await bench.clock.advance(RIGHTS_SECONDS)
        assert (viewer.is_admitted(), await bench.status("good")) == (False, 401)
        assert bench.server.open_sessions == 0
        running.cancel()
        await asyncio.wait([running])

    play(scenario)


def test_rights_that_nobody_confirms_end_after_a_while(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        running = asyncio.ensure_future(bench.access.run())
        viewer = await bench.viewer("good")
        viewer.watches = 1
        bench.server.is_away = True
        await bench.clock.advance(UNCONFIRMED_SECONDS - 1)
        assert (viewer.is_admitted(), running.done()) == (True, False)
        await bench.clock.advance(1)
        assert not viewer.is_admitted()
        bench.server.is_away = False
        await bench.clock.advance(RIGHTS_SECONDS)
        assert viewer.is_admitted()
        running.cancel()
        await asyncio.wait([running])

    play(scenario)


def test_whoever_does_not_come_back_is_forgotten(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        running = asyncio.ensure_future(bench.access.run())
        await bench.viewer("good")
        await bench.clock.advance(400)
        assert bench.server.open_sessions == 0
        running.cancel()
        await asyncio.wait([running])

    play(scenario)


def test_of_many_namespaces_all_are_found_in_time(play: Play) -> None:
    """Those with a name that comes late, too; and a right that ends is noticed at once, however many there are."""

    async def scenario(bench: Bench) -> None:
        bench.namespaces |= dict.fromkeys(f"n{number:04}" for number in range(3 * NAMESPACES_AT_ONCE))
        mine = {"n0001", f"n{3 * NAMESPACES_AT_ONCE - 1:04}"}
        bench.server.allowed = lambda token, what, namespace: what == "pods" and namespace in mine
        viewer = await bench.viewer("good")
        viewer.watches = 1
        first = viewer.sight_of("pending")
        assert first.namespaces == {"n0001"}
        assert first.lacks.endswith(f"; {2 * NAMESPACES_AT_ONCE} namespaces have not been asked about yet")
        asked = len(bench.server.asked)
        for _ in range(2):
            await bench.clock.advance(RIGHTS_SECONDS)
            await bench.access.refresh()
        assert viewer.sight_of("pending").namespaces == mine
        assert viewer.sight_of("pending").lacks == "you lack the right to list pods"
        assert len(bench.server.asked) <= 3 * asked + 2
        mine.remove("n0001")
        await bench.clock.advance(RIGHTS_SECONDS)
        await bench.access.refresh()
        assert viewer.sight_of("pending").namespaces == mine

    play(scenario)


def test_a_table_that_is_not_known_shows_nothing(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        sight = (await bench.viewer("good")).sight_of
        assert (sight("nodes").everywhere, sight("contact").everywhere, sight("secrets").everywhere) == (
            True,
            True,
            False,
        )

    play(scenario)


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/metrics", "", 401),
        ("/metrics", "bad", 401),
        ("/metrics", "good-scraper", 200),
        ("/metrics", "good", 403),
        ("/healthz", "", 200),
        ("/", "", 200),
        ("/static/page.js", "", 200),
        ("/api/stream", "", 200),
        ("/anything", "", 401),
    ],
)
def test_what_is_no_part_of_the_page_is_for_whoever_may_get_it(play: Play, path: str, token: str, status: int) -> None:
    async def scenario(bench: Bench) -> None:
        bench.server.allowed = lambda token, what, namespace: token == "good-scraper"
        assert await status_of(bench.access.admit(request(path, token))) == status

    play(scenario)


def test_another_command_has_the_token_in_a_file_for_nobody_else(play: Play, tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        words = (await bench.viewer("good-1")).cluster_options(tmp_path)
        assert "good-1" not in " ".join(words)
        found = resolve(words[1], environment={})
        assert (found.endpoint.url, found.user.token) == ("https://api.example:6443", "good-1")
        assert stat.S_IMODE(Path(words[1]).stat().st_mode) == 0o600

    play(scenario)
