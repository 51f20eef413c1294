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
from tests.kube.fake_client import MemoryClient, as_client
from tests.kube.fake_watchdog import FakeWatchdog

KEY = ("leases.v1.coordination.k8s.io", "kube-system", "koord-scheduler")


class Contender:
    """An elector and what became of its work."""

    def __init__(self, client: MemoryClient, clock: ManualClock, identity: str = "one", **options: Any) -> None:
        release = options.pop("release_on_cancel", False)
        config = LeaderElectionConfig(KEY[2], KEY[1], identity, release_on_cancel=release)
        self.elector = LeaderElector(as_client(client), config, clock=clock, random=Random(1), **options)
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


def lease(client: MemoryClient) -> dict[str, Any]:
    spec: dict[str, Any] = client.objects[KEY]["spec"]
    return spec


def put_lease(client: MemoryClient, **spec: Any) -> None:
    document = {"metadata": {"name": KEY[2], "namespace": KEY[1], "labels": {"kept": "yes"}}, "spec": spec}
    client._write(KEY, document)


OTHER = {
    "holderIdentity": "other",
    "leaseDurationSeconds": 15,
    "acquireTime": "2025-12-31T23:00:00.000000Z",
    "renewTime": "2025-12-31T23:00:00.000000Z",
    "leaseTransitions": 3,
}


def test_new_lease_is_written_as_client_go_writes_it() -> None:
    async def scenario() -> dict[str, Any]:
        client, clock = MemoryClient(), ManualClock()
        async with Contender(client, clock).running():
            await clock.advance(0)
            return lease(client)

    assert asyncio.run(scenario()) == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }


def test_renewal_keeps_the_acquire_time_and_takes_one_request() -> None:
    async def scenario() -> tuple[dict[str, Any], list[str]]:
        client, clock = MemoryClient(), ManualClock()
        async with Contender(client, clock).running():
            await clock.advance(4.5)
            return lease(client), [verb for verb, _, _ in client.calls]

    spec, verbs = asyncio.run(scenario())
    assert (spec["acquireTime"], spec["renewTime"]) == ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:04.000000Z")
    assert verbs == ["get", "create", "update", "update"]


def test_held_lease_is_taken_only_when_unchanged_for_its_duration() -> None:
    async def scenario() -> list[int]:
        client, clock = MemoryClient(), ManualClock()
        put_lease(client, **OTHER)
        async with Contender(client, clock).running():
            await clock.advance(14.9)
            before = lease(client)["holderIdentity"]
            await clock.advance(5)
            return [before, lease(client)["holderIdentity"], lease(client)["leaseTransitions"]]

    assert asyncio.run(scenario()) == ["other", "one", 4]


def test_renewals_of_the_holder_are_waited_out_whatever_their_times_say() -> None:
    async def scenario() -> str:
        client, clock = MemoryClient(), ManualClock()
        async with Contender(client, clock).running():
            for second in range(60):
                put_lease(client, **{**OTHER, "renewTime": f"2020-01-01T00:00:00.{second:06d}Z"})
                await clock.advance(1)
            return str(lease(client)["holderIdentity"])

    assert asyncio.run(scenario()) == "other"


def test_released_lease_is_taken_at_the_next_try() -> None:
    async def scenario() -> str:
        client, clock = MemoryClient(), ManualClock()
        put_lease(client, **{**OTHER, "holderIdentity": ""})
        async with Contender(client, clock).running():
            await clock.advance(0)
            return str(lease(client)["holderIdentity"])

    assert asyncio.run(scenario()) == "one"


def test_labels_of_the_lease_are_kept() -> None:
    async def scenario() -> Any:
        client, clock = MemoryClient(), ManualClock()
        put_lease(client, **{**OTHER, "holderIdentity": ""})
        async with Contender(client, clock).running():
            await clock.advance(0)
            return client.objects[KEY]["metadata"]["labels"]

    assert asyncio.run(scenario()) == {"kept": "yes"}


def test_cancelled_leader_releases_when_asked() -> None:
    async def scenario() -> tuple[dict[str, Any], list[str]]:
        client, clock = MemoryClient(), ManualClock()
        contender = Contender(client, clock, release_on_cancel=True)
        async with contender.running():
            await clock.advance(1)
        return lease(client), contender.log

    spec, log = asyncio.run(scenario())
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("", 1, 0)
    assert log == ["started", "cancelled", "stopped"]


def test_cancelled_leader_keeps_the_lease_by_default() -> None:
    async def scenario() -> str:
        client, clock = MemoryClient(), ManualClock()
        async with Contender(client, clock).running():
            await clock.advance(1)
        return str(lease(client)["holderIdentity"])

    assert asyncio.run(scenario()) == "one"


def test_release_leaves_another_holder_alone() -> None:
    async def scenario() -> str:
        client, clock = MemoryClient(), ManualClock()
        async with Contender(client, clock, release_on_cancel=True).running():
            await clock.advance(1)
            put_lease(client, **OTHER)
        return str(lease(client)["holderIdentity"])

    assert asyncio.run(scenario()) == "other"


def test_lost_api_server_ends_the_term_by_the_renew_deadline() -> None:
    async def scenario() -> tuple[list[str], list[str]]:
        client, clock = MemoryClient(), ManualClock()

        async def refuse(verb: str, name: str) -> None:
            raise TransportError("connection refused")

        contender = Contender(client, clock)
        async with contender.running():
            await clock.advance(1)
            client.before = refuse
            await clock.advance(8.9)
            early = list(contender.log)
            await clock.advance(0.2)
            return early, contender.log

    assert asyncio.run(scenario()) == (["started"], ["started", "cancelled", "stopped"])


def test_hanging_requests_end_the_term_by_the_renew_deadline() -> None:
    async def scenario() -> list[str]:
        client, clock = MemoryClient(), ManualClock()

        async def hang(verb: str, name: str) -> None:
            await asyncio.Event().wait()

        contender = Contender(client, clock)
        async with contender.running():
            await clock.advance(1)
            client.before = hang
            await clock.advance(9.1)
            return contender.log

    assert asyncio.run(scenario()) == ["started", "cancelled", "stopped"]


def test_short_loss_is_survived() -> None:
    async def scenario() -> list[str]:
        client, clock = MemoryClient(), ManualClock()

        async def refuse(verb: str, name: str) -> None:
            if 1 < clock.monotonic() < 9:
                raise TransportError("connection refused")

        client.before = refuse
        contender = Contender(client, clock)
        async with contender.running():
            await clock.advance(60)
            return list(contender.log)

    assert asyncio.run(scenario()) == ["started"]


def test_leader_steps_down_at_once_when_another_holds_the_lease() -> None:
    async def scenario() -> list[str]:
        client, clock = MemoryClient(), ManualClock()
        contender = Contender(client, clock)
        async with contender.running():
            await clock.advance(1)
            put_lease(client, **OTHER)
            await clock.advance(1.1)
            return contender.log

    assert asyncio.run(scenario()) == ["started", "cancelled", "stopped"]


def test_lost_answer_of_a_renewal_is_no_loss() -> None:
    async def scenario() -> list[str]:
        client, clock = MemoryClient(), ManualClock()
        lost: list[str] = []

        async def lose_one_answer(verb: str, name: str) -> None:
            if verb == "update" and not lost:
                lost.append(verb)
                raise TransportError("connection reset")

        client.after = lose_one_answer
        contender = Contender(client, clock)
        async with contender.running():
            await clock.advance(30)
            return list(contender.log)

    assert asyncio.run(scenario()) == ["started"]


def test_work_that_ends_ends_the_run() -> None:
    async def scenario() -> list[str]:
        client, clock = MemoryClient(), ManualClock()
        contender = Contender(client, clock)

        async def work() -> None:
            contender.log.append("worked")

        await contender.elector.run(work, lambda: contender.log.append("stopped"))
        return contender.log

    assert asyncio.run(scenario()) == ["worked", "stopped"]


def test_error_of_the_work_comes_out() -> None:
    async def work() -> None:
        raise RuntimeError("no")

    async def scenario() -> None:
        await Contender(MemoryClient(), ManualClock()).elector.run(work)

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(scenario())
    assert raised.group_contains(RuntimeError, match="no")


def test_work_that_does_not_stop_is_reported_before_another_may_lead() -> None:
    async def scenario() -> list[float]:
        client, clock = MemoryClient(), ManualClock()
        release = asyncio.Event()

        async def stubborn() -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        async def refuse(verb: str, name: str) -> None:
            raise TransportError("connection refused")

        watchdog = FakeWatchdog(clock)
        contender = Contender(client, clock, watchdog=watchdog)
        async with contender.running(stubborn):
            await clock.advance(1)
            client.before = refuse
            await clock.advance(20)
            release.set()
            await clock.advance(0)
        return watchdog.strikes

    assert asyncio.run(scenario()) == [15.0]


def test_every_renewal_gives_the_watchdog_a_later_time_and_the_end_stops_it() -> None:
    async def scenario() -> tuple[list[float | None], list[float]]:
        client, clock = MemoryClient(), ManualClock()
        watchdog = FakeWatchdog(clock)
        deadlines: list[float | None] = [watchdog.deadline]
        async with Contender(client, clock, watchdog=watchdog).running():
            for _ in range(3):
                await clock.advance(2)
                deadlines.append(watchdog.deadline)
        return [*deadlines, watchdog.deadline], watchdog.strikes

    assert asyncio.run(scenario()) == ([None, 17.0, 19.0, 21.0, None], [])


def test_term_is_over_for_the_work_even_while_it_has_not_been_cancelled() -> None:
    async def scenario() -> list[bool]:
        client, clock = MemoryClient(), ManualClock()
        contender = Contender(client, clock)
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
        client, clock = MemoryClient(), ManualClock()
        put_lease(client, **OTHER)
        leaders: list[str] = []
        async with Contender(client, clock, on_new_leader=leaders.append).running():
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


def test_memory_client_files_leases_as_the_test_expects() -> None:
    assert LEASES.qualified == KEY[0]
