"""The elector alone: what it writes, when it takes over and when it steps down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from koordinator.api.kinds import LEASES
from koordinator.base.clock import ManualClock
from koordinator.base.errors import ConfigurationError
from koordinator.kube.errors import TransportError
from koordinator.kube.leader_election import LeaderElector
from koordinator.kube.leader_election_config import LeaderElectionConfig
from tests.in_memory_api import ApiRequest, Hang, InMemoryApi
from tests.kube.fake_watchdog import FakeWatchdog

NAME, NAMESPACE = "koord-scheduler", "koordinator-system"


class Contender:
    """An elector and what became of its work."""

    def __init__(self, api: InMemoryApi, clock: ManualClock, identity: str = "one", **options: Any) -> None:
        release = options.pop("release_on_cancel", False)
        config = LeaderElectionConfig(NAME, NAMESPACE, identity, release_on_cancel=release)
        self.elector = LeaderElector(api.client(), config, clock=clock, random=Random(1), **options)
        self.log: list[str] = []

    async def work(self) -> None:
        self.log.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            self.log.append("cancelled")

    @asynccontextmanager
    async def running(self, work: Callable[[], Any] | None = None) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.elector.run(work or self.work, lambda: self.log.append("stopped")))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def server() -> tuple[InMemoryApi, ManualClock]:
    clock = ManualClock()
    return InMemoryApi(clock), clock


def lease(api: InMemoryApi) -> dict[str, Any]:
    spec: dict[str, Any] = api.document(LEASES, NAME, NAMESPACE)["spec"]
    return spec


def put_lease(api: InMemoryApi, **spec: Any) -> None:
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": {"kept": "yes"}}
    api.put(LEASES, {"metadata": metadata, "spec": spec})


OTHER = {
    "holderIdentity": "other",
    "leaseDurationSeconds": 15,
    "acquireTime": "2025-12-31T23:00:00.000000Z",
    "renewTime": "2025-12-31T23:00:00.000000Z",
    "leaseTransitions": 3,
}


def test_new_lease_is_written_as_client_go_writes_it() -> None:
    async def scenario() -> dict[str, Any]:
        api, clock = server()
        async with Contender(api, clock).running():
            await clock.advance(0)
            return lease(api)

    assert asyncio.run(scenario()) == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }


def test_renewal_keeps_the_acquire_time_and_takes_one_request() -> None:
    async def scenario() -> tuple[dict[str, Any], list[str]]:
        api, clock = server()
        async with Contender(api, clock).running():
            await clock.advance(4.5)
            return lease(api), [request.verb for request in api.requests]

    spec, verbs = asyncio.run(scenario())
    assert (spec["acquireTime"], spec["renewTime"]) == ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:04.000000Z")
    assert verbs == ["get", "create", "update", "update"]


def test_held_lease_is_taken_only_when_unchanged_for_its_duration() -> None:
    async def scenario() -> list[int]:
        api, clock = server()
        put_lease(api, **OTHER)
        async with Contender(api, clock).running():
            await clock.advance(14.9)
            before = lease(api)["holderIdentity"]
            await clock.advance(5)
            return [before, lease(api)["holderIdentity"], lease(api)["leaseTransitions"]]

    assert asyncio.run(scenario()) == ["other", "one", 4]


def test_renewals_of_the_holder_are_waited_out_whatever_their_times_say() -> None:
    async def scenario() -> str:
        api, clock = server()
        async with Contender(api, clock).running():
            for second in range(60):
                put_lease(api, **{**OTHER, "renewTime": f"2020-01-01T00:00:00.{second:06d}Z"})
                await clock.advance(1)
            return str(lease(api)["holderIdentity"])

    assert asyncio.run(scenario()) == "other"


def test_released_lease_is_taken_at_the_next_try() -> None:
    async def scenario() -> str:
        api, clock = server()
        put_lease(api, **{**OTHER, "holderIdentity": ""})
        async with Contender(api, clock).running():
            await clock.advance(0)
            return str(lease(api)["holderIdentity"])

    assert asyncio.run(scenario()) == "one"


def test_labels_of_the_lease_are_kept() -> None:
    async def scenario() -> Any:
        api, clock = server()
        put_lease(api, **{**OTHER, "holderIdentity": ""})
        async with Contender(api, clock).running():
            await clock.advance(0)
            return api.document(LEASES, NAME, NAMESPACE)["metadata"]["labels"]

    assert asyncio.run(scenario()) == {"kept": "yes"}


def test_cancelled_leader_releases_when_requested() -> None:
    async def scenario() -> tuple[dict[str, Any], list[str]]:
        api, clock = server()
        contender = Contender(api, clock, release_on_cancel=True)
        async with contender.running():
            await clock.advance(1)
        return lease(api), contender.log

    spec, log = asyncio.run(scenario())
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("", 1, 0)
    assert log == ["started", "cancelled", "stopped"]


def test_cancelled_leader_keeps_the_lease_by_default() -> None:
    async def scenario() -> str:
        api, clock = server()
        async with Contender(api, clock).running():
            await clock.advance(1)
        return str(lease(api)["holderIdentity"])

    assert asyncio.run(scenario()) == "one"


def test_release_leaves_another_holder_alone() -> None:
    async def scenario() -> str:
        api, clock = server()
        async with Contender(api, clock, release_on_cancel=True).running():
            await clock.advance(1)
            put_lease(api, **OTHER)
        return str(lease(api)["holderIdentity"])

    assert asyncio.run(scenario()) == "other"


def test_lost_api_server_ends_the_term_by_the_renew_deadline() -> None:
    async def scenario() -> tuple[list[str], list[str]]:
        api, clock = server()

        contender = Contender(api, clock)
        async with contender.running():
            await clock.advance(1)
            api.go_away()
            await clock.advance(8.9)
            early = list(contender.log)
            await clock.advance(0.2)
            return early, contender.log

    assert asyncio.run(scenario()) == (["started"], ["started", "cancelled", "stopped"])


def test_hanging_requests_end_the_term_by_the_renew_deadline() -> None:
    async def scenario() -> list[str]:
        api, clock = server()

        contender = Contender(api, clock)
        async with contender.running():
            await clock.advance(1)
            api.fault = lambda request, done: Hang()
            await clock.advance(9.1)
            return contender.log

    assert asyncio.run(scenario()) == ["started", "cancelled", "stopped"]


def test_short_loss_is_survived() -> None:
    async def scenario() -> list[str]:
        api, clock = server()
        refused = TransportError("connection refused")
        api.fault = lambda request, done: refused if 1 < clock.monotonic() < 9 else None
        contender = Contender(api, clock)
        async with contender.running():
            await clock.advance(60)
            return list(contender.log)

    assert asyncio.run(scenario()) == ["started"]


def test_leader_steps_down_at_once_when_another_holds_the_lease() -> None:
    async def scenario() -> list[str]:
        api, clock = server()
        contender = Contender(api, clock)
        async with contender.running():
            await clock.advance(1)
            put_lease(api, **OTHER)
            await clock.advance(1.1)
            return contender.log

    assert asyncio.run(scenario()) == ["started", "cancelled", "stopped"]


def test_lost_response_of_a_renewal_is_no_loss() -> None:
    async def scenario() -> list[str]:
        api, clock = server()
        lost: list[str] = []

        def lose_one_response(request: ApiRequest, done: bool) -> Exception | None:
            if not done or request.verb != "update" or lost:
                return None
            lost.append(request.verb)
            return TransportError("connection reset")

        api.fault = lose_one_response
        contender = Contender(api, clock)
        async with contender.running():
            await clock.advance(30)
            return list(contender.log)

    assert asyncio.run(scenario()) == ["started"]


def test_work_that_ends_ends_the_run() -> None:
    async def scenario() -> list[str]:
        api, clock = server()
        contender = Contender(api, clock)

        async def work() -> None:
            contender.log.append("worked")

        await contender.elector.run(work, lambda: contender.log.append("stopped"))
        return contender.log

    assert asyncio.run(scenario()) == ["worked", "stopped"]


def test_error_of_the_work_comes_out() -> None:
    async def work() -> None:
        raise RuntimeError("no")

    async def scenario() -> None:
        await Contender(*server()).elector.run(work)

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(scenario())
    assert raised.group_contains(RuntimeError, match="no")


def test_work_that_does_not_stop_is_reported_before_another_may_lead() -> None:
    async def scenario() -> list[float]:
        api, clock = server()
        release = asyncio.Event()

        async def stubborn() -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        watchdog = FakeWatchdog(clock)
        contender = Contender(api, clock, watchdog=watchdog)
        async with contender.running(stubborn):
            await clock.advance(1)
            api.go_away()
            await clock.advance(20)
            release.set()
            await clock.advance(0)
        return watchdog.strikes

    assert asyncio.run(scenario()) == [15.0]


def test_every_renewal_gives_the_watchdog_a_later_time_and_the_end_stops_it() -> None:
    async def scenario() -> tuple[list[float | None], list[float]]:
        api, clock = server()
        watchdog = FakeWatchdog(clock)
        deadlines: list[float | None] = [watchdog.deadline]
        async with Contender(api, clock, watchdog=watchdog).running():
            for _ in range(3):
                await clock.advance(2)
                deadlines.append(watchdog.deadline)
        return [*deadlines, watchdog.deadline], watchdog.strikes

    assert asyncio.run(scenario()) == ([None, 17.0, 19.0, 21.0, None], [])


def test_term_is_over_for_the_work_even_while_it_has_not_been_cancelled() -> None:
    async def scenario() -> list[bool]:
        api, clock = server()
        contender = Contender(api, clock)
        elector = contender.elector
        async with contender.running():
            await clock.advance(1)
            before = elector.is_leading
            # A blocked event loop: time passes, no task runs.
            clock._monotonic += 10
            return [before, elector.is_leading]

    assert asyncio.run(scenario()) == [True, False]


def test_new_leaders_are_reported() -> None:
    async def scenario() -> list[str]:
        api, clock = server()
        put_lease(api, **OTHER)
        leaders: list[str] = []
        async with Contender(api, clock, on_new_leader=leaders.append).running():
            await clock.advance(30)
        return leaders

    assert asyncio.run(scenario()) == ["other", "one"]


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("leaseDuration", {"lease_duration": 10.0}),
        ("leaseDuration", {"lease_duration": 10.9, "renew_deadline": 10.5}),
        ("renewDeadline", {"renew_deadline": 2.4}),
        ("retryPeriod", {"retry_period": 0.0}),
    ],
)
def test_durations_that_are_not_safe_are_refused(field: str, options: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=field):
        LeaderElectionConfig("name", "namespace", "me", **options)  # type: ignore[arg-type]
