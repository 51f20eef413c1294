"""The evictor: what it requests of the API server, and what it does with each response."""

from __future__ import annotations

import asyncio
import json

import pytest

from koordinator.api.annotations import GANG_NAME
from koordinator.api.kinds import PODS
from koordinator.api.meta import StatusCause, StatusDetails
from koordinator.api.modification import EVICTED
from koordinator.base.clock import ManualClock
from koordinator.koordlet.enforce.evictions import Evictor
from koordinator.koordlet.enforce.strategies.eviction import EvictionPlan, Feature, Inputs, plan
from koordinator.koordlet.enforce.strategies.eviction_round import Victim
from koordinator.kube.errors import ApiStatusError, TransportError
from tests.in_memory_api import Hang, InMemoryApi
from tests.koordlet.enforce.strategies.qos_fixtures import GIB, pod_usage, snapshot, suppression
from tests.recorded_events import RecordedEvents

PRESENT = frozenset({"uid-a", "uid-b"})


class Bench:
    """An evictor whose API server fails for the names in ``failures``."""

    def __init__(self, *, observe_only: bool = False) -> None:
        self.clock, self.recorded = ManualClock(), RecordedEvents()
        self.api = InMemoryApi(self.clock)
        self.failures: dict[str, Exception] = {}
        self.counted: list[Victim] = []
        self.api.fault = lambda request, done: self.failures.get(request.name)
        for name in "ab":
            self.put(name)
        given = self.api.client(), self.clock, self.recorded, None, self.counted.append
        self.evictor = Evictor(*given, observe_only=observe_only)

    def put(self, name: str, uid: str = "") -> None:
        """The pod in the API server."""
        containers = [{"name": "c", "image": "i"}]
        metadata = {"name": name, "namespace": "shop", "uid": uid or f"uid-{name}"}
        self.api.put(PODS, {"metadata": metadata, "spec": {"containers": containers}, "status": {"phase": "Running"}})

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(each.reason, each.regarding.uid) for each in self.recorded.events]

    @property
    def requests(self) -> list[str]:
        return [request.name for request in self.api.requests]

    def carry_out(self) -> list[str]:
        return _names(asyncio.run(self.evictor.carry_out(_plan(), PRESENT)))

    def later(self, seconds: float) -> list[str]:
        """Who goes in a round after so long, everything being as before."""
        asyncio.run(self.clock.advance(seconds))
        return self.carry_out()


def _names(victims: list[Victim]) -> list[str]:
    return [victim.usage.pod.pod.metadata.name for victim in victims]


def _plan(used: float = 48.0, *, terminating: bool = False, static: bool = False, gang: str = "") -> EvictionPlan:
    """At 48 GiB one of the two pods is enough, the larger one is ``a``, which may end already; at 54 GiB both have to
    go."""
    annotations = {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "uid-a"} if static else {}
    annotations |= {GANG_NAME: gang} if gang else {}
    larger = pod_usage("a", "BE", memory=6.0 * GIB, is_terminating=terminating, annotations=annotations)
    pods = (larger, pod_usage("b", "BE", memory=5.0 * GIB))
    policy = suppression(memoryEvictThresholdPercent=70)
    return plan(Inputs(snapshot(policy=policy, pods=pods, node_memory=used * GIB)), [Feature.BE_MEMORY])


def _refused() -> ApiStatusError:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    details = StatusDetails(causes=[StatusCause(reason="DisruptionBudget", message="the budget needs 1 healthy pod")])
    return ApiStatusError(429, "TooManyRequests", message, details)


def test_what_a_budget_refuses_is_followed_by_the_next_candidate_and_reported_on_the_pod() -> None:
    bench = Bench()
    bench.failures["a"] = _refused()
    assert bench.carry_out() == ["b"]
    assert bench.events == [("evictPodFail", "uid-a"), ("evictPodSuccess", "uid-b")]


def test_the_audit_gets_who_was_evicted_for_which_feature_and_what_it_used() -> None:
    bench = Bench()
    bench.carry_out()
    (record,) = bench.recorded.records
    assert (record.action, record.actor, record.cause.code) == (EVICTED, "BEMemoryEvict", "BEMemoryEvict")
    assert record.cause.text
    assert record.numbers["usedMemoryBytes"] == 6.0 * GIB


def test_the_audit_gets_the_gang_that_has_lost_a_member() -> None:
    bench = Bench()
    asyncio.run(bench.evictor.carry_out(_plan(gang="training"), PRESENT))
    (record,) = bench.recorded.records
    assert record.cause.text.endswith("; the pod is a member of gang shop/training")


def test_an_eviction_names_the_pods_uid() -> None:
    bench = Bench()
    bench.carry_out()
    bodies = [json.loads(request.body) for request in bench.api.requests]
    assert [body["deleteOptions"]["preconditions"] for body in bodies] == [{"uid": "uid-a"}]


def test_an_evicted_pod_that_is_still_there_is_not_evicted_again_and_counts() -> None:
    bench = Bench()
    assert bench.carry_out() == ["a"]
    assert bench.carry_out() == []
    assert bench.requests == ["a"]


def test_two_rounds_at_a_time_evict_a_pod_once() -> None:
    bench = Bench()

    async def both() -> list[list[Victim]]:
        return await asyncio.gather(*(bench.evictor.carry_out(_plan(54.0), PRESENT) for _ in range(2)))

    assert [_names(gone) for gone in asyncio.run(both())] == [["a"], ["b"]]
    assert bench.requests == ["a", "b"]


def test_a_pod_that_vanishes_while_its_eviction_fails_ends_no_round() -> None:
    bench = Bench()
    bench.failures["a"] = _refused()

    async def both() -> list[Victim]:
        round_ = asyncio.create_task(bench.evictor.carry_out(_plan(), PRESENT))
        await asyncio.sleep(0)
        bench.evictor.forget(())
        return await round_

    assert _names(asyncio.run(both())) == ["b"]


@pytest.mark.parametrize("new_uid", ["", "another"], ids=["gone", "made anew"])
def test_no_other_pod_pays_for_one_that_has_gone_by_itself(new_uid: str) -> None:
    bench = Bench()
    bench.api.remove(PODS, "a", "shop")
    if new_uid:
        bench.put("a", new_uid)
    assert bench.carry_out() == []
    assert bench.requests == ["a"]
    assert bench.counted == []


def test_a_static_pod_is_never_requested_to_go_and_does_not_keep_the_next_one() -> None:
    """The API server has it under the UID of its mirror pod, whose eviction would end nothing on the node."""
    bench = Bench()
    bench.put("a", "the mirror's")
    assert _names(asyncio.run(bench.evictor.carry_out(_plan(static=True), PRESENT))) == ["b"]
    assert bench.requests == ["b"]


@pytest.mark.parametrize("new_uid", ["", "another"], ids=["404", "409"])
def test_a_pod_that_the_node_keeps_though_the_server_has_no_such_pod_counts_for_a_while_only(new_uid: str) -> None:
    bench = Bench()
    bench.api.remove(PODS, "a", "shop")
    if new_uid:
        bench.put("a", new_uid)
    assert (bench.carry_out(), bench.later(60)) == ([], [])
    assert bench.later(61) == ["b"]
    assert bench.requests == ["a", "b"]


def test_a_pod_that_outlives_its_eviction_counts_for_a_while_only() -> None:
    """Such as when the kubelet, which lists it without its end, does not hear of it."""
    bench = Bench()
    assert (bench.carry_out(), bench.later(119)) == (["a"], [])
    assert bench.later(2) == ["b"]
    assert bench.requests == ["a", "b"]


@pytest.mark.parametrize(
    "failure",
    [
        ApiStatusError(403, "Forbidden", "pdb disruptions allowed is negative"),
        ApiStatusError(403, "Forbidden", 'admission webhook "guard" denied the request'),
        ApiStatusError(429, "TooManyRequests", 'admission webhook "guard" denied the request: not now'),
        ApiStatusError(500, "InternalError", "This pod has more than one PodDisruptionBudget"),
        ApiStatusError(500, "InternalError", 'failed calling webhook "guard": context deadline exceeded'),
    ],
    ids=lambda failure: failure.message.replace(" ", "-"),
)
def test_what_the_server_refuses_of_one_pod_is_followed_by_the_next_candidate(failure: ApiStatusError) -> None:
    bench = Bench()
    bench.failures["a"] = failure
    assert bench.carry_out() == ["b"]


@pytest.mark.parametrize(
    "failure",
    [
        TransportError("no response within 25 s", timed_out=True),
        TransportError("the response broke off"),
        ApiStatusError(504, "Timeout", "couldn't update PodDisruptionBudget due to conflicts"),
    ],
    ids=lambda failure: str(failure).replace(" ", "-"),
)
def test_an_eviction_that_has_no_outcome_counts_until_the_node_would_show_it_and_then_others_go_first(
    failure: Exception,
) -> None:
    bench = Bench()
    bench.failures["a"] = failure
    assert (bench.carry_out(), bench.later(10)) == ([], [])
    assert bench.later(11) == ["b"]
    assert bench.requests == ["a", "b"]


def test_a_pod_whose_eviction_had_no_outcome_goes_after_all_if_the_others_are_not_enough() -> None:
    bench = Bench()
    bench.failures["a"] = TransportError("no response within 25 s", timed_out=True)

    async def rounds() -> list[Victim]:
        await bench.evictor.carry_out(_plan(54.0), PRESENT)
        bench.failures = {}
        await bench.clock.advance(21)
        return await bench.evictor.carry_out(_plan(54.0), PRESENT)

    assert _names(asyncio.run(rounds())) == ["b", "a"]


def test_a_pod_whose_eviction_had_no_outcome_has_its_turn_again_after_two_minutes() -> None:
    bench = Bench()
    bench.failures = {name: TransportError("no response within 25 s", timed_out=True) for name in "ab"}
    bench.carry_out()
    bench.failures = {}
    assert bench.later(141) == ["a"]


def test_an_eviction_that_is_cut_off_counts_until_the_node_would_show_it_and_then_others_go_first() -> None:
    """The loop's deadline ends a round in which the API server hangs."""
    bench = Bench()
    bench.failures["a"] = Hang()

    async def rounds() -> list[list[str]]:
        round_ = asyncio.create_task(bench.evictor.carry_out(_plan(), PRESENT))
        while not bench.requests:
            await asyncio.sleep(0)
        round_.cancel()
        await asyncio.gather(round_, return_exceptions=True)
        found = []
        for pause in (10, 11):
            await bench.clock.advance(pause)
            found.append(_names(await bench.evictor.carry_out(_plan(), PRESENT)))
        return found

    assert asyncio.run(rounds()) == [[], ["b"]]


def test_a_server_that_does_not_respond_is_queried_once_in_a_round() -> None:
    bench = Bench()
    bench.failures = {name: TransportError("refused", maybe_applied=False) for name in "ab"}
    assert bench.carry_out() == []
    assert bench.requests == ["a"]
    bench.failures = {}
    assert bench.carry_out() == ["a"]


@pytest.mark.parametrize("code", [429, 503, 504])
def test_a_server_that_has_too_much_to_do_is_queried_once_in_a_round(code: int) -> None:
    """Its 429 is not that of a budget or of a webhook, for which the next candidate would be queried."""
    bench = Bench()
    # The client does not wait for so long.
    details = StatusDetails(retry_after_seconds=3600)
    overload = ApiStatusError(code, "", "too many requests, please try again later", details)
    bench.failures = dict.fromkeys("ab", overload)
    assert bench.carry_out() == []
    assert bench.requests == ["a"]


def test_a_pod_that_somebody_else_ends_counts_and_nobody_goes_for_it() -> None:
    bench = Bench()
    gone = asyncio.run(bench.evictor.carry_out(_plan(terminating=True), PRESENT))
    assert (_names(gone), bench.requests) == ([], [])


def test_a_pod_that_hangs_in_its_end_does_not_keep_others_from_going() -> None:
    bench = Bench()

    async def rounds() -> list[Victim]:
        await bench.evictor.carry_out(_plan(terminating=True), PRESENT)
        await bench.clock.advance(121)
        return await bench.evictor.carry_out(_plan(terminating=True), PRESENT)

    assert _names(asyncio.run(rounds())) == ["b"]


def test_who_only_observes_evicts_nobody() -> None:
    bench = Bench(observe_only=True)
    bench.carry_out()
    assert (bench.requests, bench.events, bench.counted) == ([], [], [])
