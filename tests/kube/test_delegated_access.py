"""Who may see the pages of a program, as the API server says: what is asked, what is kept, and who is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from multidict import CIMultiDict

from koordinator.api.kinds import TOKEN_REVIEWS
from koordinator.api.reviews import (
    AUDIENCE,
    TOKEN_HEADER,
    SubjectAccessReview,
    SubjectAccessReviewStatus,
    TokenReview,
    TokenReviewStatus,
    UserInfo,
)
from koordinator.base.clock import ManualClock
from koordinator.kube.delegated_access import DelegatedAccess
from koordinator.kube.errors import TransportError
from koordinator.kube.interface import Client
from koordinator.kube.pages import ClientName, PageError, Request
from koordinator.kube.secure_options import AccessOptions

SCRAPER = UserInfo(username="scraper", groups=["system:authenticated"])


class Reviewer:
    """The reviews of an API server: ``scraper`` has the token ``good`` and may get /metrics."""

    def __init__(self) -> None:
        self.tokens = {"good": SCRAPER}
        self.audiences: list[str] = []
        """For whom the tokens are, beside the API server."""
        self.rights = {("scraper", "get", "/metrics"), ("system:anonymous", "get", "/version")}
        self.rights.add(("scraper", "get", "/apis/v1/nodes/n"))
        self.asked: list[str] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.fault: Exception | None = None

    async def create(self, kind: Any, body: TokenReview | SubjectAccessReview) -> Any:
        if isinstance(body, TokenReview):
            assert kind is TOKEN_REVIEWS
            self.asked.append(f"who {body.spec.token}")
        else:
            asked = body.spec.non_resource_attributes
            self.asked.append(f"may {body.spec.user} {asked.verb} {asked.path}")
        await self.answers.wait()
        if self.fault is not None:
            raise self.fault
        if isinstance(body, TokenReview):
            user = self.tokens.get(body.spec.token)
            audiences = [each for each in self.audiences if each in body.spec.audiences]
            # A token for others is none here.
            user = user if bool(body.spec.audiences) == bool(audiences) else None
            status = TokenReviewStatus(user is not None, user or UserInfo(), audiences)
            return TokenReview(spec=body.spec, status=status)
        allowed = (body.spec.user, asked.verb, asked.path) in self.rights
        return SubjectAccessReview(spec=body.spec, status=SubjectAccessReviewStatus(allowed))


class Bench:
    def __init__(self) -> None:
        self.api, self.clock = Reviewer(), ManualClock()
        client = cast("Client", self.api)
        self.access = DelegatedAccess(client, client, self.clock, AccessOptions())

    async def status(self, path: str, token: str = "", *, method: str = "GET", client: ClientName | None = None) -> int:
        headers = CIMultiDict({"Authorization": f"Bearer {token}"} if token else {})
        return await self.status_of(Request.to(method, path, headers, client=client))

    async def status_of(self, request: Request) -> int:
        try:
            await self.access.admit(request)
        except PageError as error:
            return error.response.status
        return 200


def play(scenario: Callable[[Bench], Awaitable[None]]) -> Bench:
    async def whole() -> Bench:
        bench = Bench()
        await scenario(bench)
        return bench

    return asyncio.run(whole())


@pytest.mark.parametrize(
    ("path", "token", "method", "status"),
    [
        ("/metrics", "good", "GET", 200),
        ("/metrics", "good", "POST", 403),
        ("/debug/pprof/heap", "good", "GET", 403),
        ("/metrics", "bad", "GET", 401),
        ("/metrics", "", "GET", 403),
        # What everybody may get of an API server is not what everybody may get of a program.
        ("/apis/v1/nodes/n", "good", "GET", 403),
        ("/version", "", "GET", 200),
        ("/healthz", "", "GET", 200),
        ("/healthz", "bad", "GET", 401),
        ("/healthz/../metrics", "", "GET", 403),
        ("/metrics", "x" * 20_000, "GET", 401),
    ],
)
def test_who_is_admitted(path: str, token: str, method: str, status: int) -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.status(path, token, method=method) == status

    play(scenario)


@pytest.mark.parametrize(("audiences", "status"), [([AUDIENCE], 200), (["others"], 401), ([], 401)])
def test_a_token_for_programs_is_good_for_nothing_else(audiences: list[str], status: int) -> None:
    async def scenario(bench: Bench) -> None:
        bench.api.audiences = audiences
        headers = CIMultiDict({TOKEN_HEADER: "good", "Authorization": "Bearer bad"})
        assert await bench.status_of(Request.to("GET", "/metrics", headers)) == status

    play(scenario)


def test_a_certificate_gives_a_name_and_its_organizations_are_groups() -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.status("/metrics", client=ClientName("scraper", ("monitors",))) == 200

    assert play(scenario).api.asked == ["may scraper get /metrics"]


def test_an_answer_is_kept_for_its_time() -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(3):
            assert await bench.status("/metrics", "good") == 200
        assert bench.api.asked == ["who good", "may scraper get /metrics"]
        bench.api.tokens.clear()
        await bench.clock.advance(11)
        assert await bench.status("/metrics", "good") == 401

    play(scenario)


def test_requests_at_once_are_one_question() -> None:
    async def scenario(bench: Bench) -> None:
        bench.api.answers.clear()
        waiting = [asyncio.create_task(bench.status("/metrics", "good")) for _ in range(5)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        bench.api.answers.set()
        assert await asyncio.gather(*waiting[1:]) == [200] * 4

    assert play(scenario).api.asked == ["who good", "may scraper get /metrics"]


def test_strangers_use_up_nobody_elses_questions() -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.status("/metrics", "good") == 200
        await bench.clock.advance(20)
        found = [await bench.status("/metrics", f"bad-{number}") for number in range(200)]
        assert found.count(401) < 60
        assert found[-1] == 429
        assert await bench.status("/metrics", "good") == 200

    play(scenario)


def test_clients_without_a_token_use_up_no_questions_about_tokens() -> None:
    async def scenario(bench: Bench) -> None:
        found = [await bench.status(f"/y{number}") for number in range(200)]
        assert found[-1] == 429
        assert await bench.status("/metrics", "good") == 200

    play(scenario)


def test_what_is_not_answered_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        bench.api.fault = TransportError("connection refused")
        for number in range(5):
            await bench.status("/metrics", f"token-{number}")
            bench.api.fault = None
            await bench.status(f"/y{number}")
            bench.api.fault = TransportError("connection refused")

    play(scenario)
    assert len(caplog.records) == 1


def test_without_an_answer_nobody_is_admitted_but_probes() -> None:
    async def scenario(bench: Bench) -> None:
        bench.api.fault = TransportError("connection refused")
        assert await bench.status("/metrics", "good") == 503
        assert await bench.status("/readyz") == 200
        bench.api.fault = None
        assert await bench.status("/metrics", "good") == 200

    play(scenario)


def test_what_is_kept_is_bounded_and_has_no_tokens() -> None:
    async def scenario(bench: Bench) -> None:
        for number in range(3000):
            await bench.clock.advance(0.1)
            await bench.status("/metrics", f"bad-{number}")
        assert len(bench.access._tokens._known) <= 1024
        assert not [key for key in bench.access._tokens._known if b"bad" in key]

    play(scenario)
