"""Caps on the CPU of pods that disturb others: when, how low, for how long, and that nothing stays behind."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from koordinator.api.qos import QoSClass
from koordinator.koordlet.enforce.executor.desired_settings import Priority
from koordinator.koordlet.enforce.policy import EnforcedPolicy, InterferenceStrategy
from koordinator.koordlet.enforce.strategies.interference_cap import CapState, decide
from koordinator.koordlet.enforce.strategies.snapshot import PodUsage, Snapshot
from koordinator.koordlet.observe.interference.detection import Finding, Indicator, Suspect
from tests.koordlet.enforce.strategies.qos_fixtures import kubelet_bandwidths, pod_usage, policy, snapshot

ON = InterferenceStrategy(suppress=True)


def extension(**fields: Any) -> dict[str, Any]:
    return {"Object": {"interference": fields}}


def job(cpu: float | None = 4.0) -> PodUsage:
    return pod_usage("job", "BE", cpu=cpu)


def node(*pods: PodUsage) -> Snapshot:
    return snapshot(pods=pods or (job(), pod_usage("web")))


def blamed(uid: str = "", confidence: float = 0.8, advice: str = "suppress") -> Finding:
    suspect = Suspect(uid or job().pod.uid, "team/job", QoSClass.BE, 0.9, confidence, advice)
    since = datetime(2026, 3, 1, tzinfo=UTC)
    return Finding("uid-web", "shop/web", Indicator.CPU, since, 30.0, 1.0, 5.0, (suspect,))


def quotas(
    state: CapState,
    now: float,
    *findings: Finding,
    strategy: InterferenceStrategy = ON,
    present: Snapshot | None = None,
) -> tuple[dict[str, tuple[int, Priority]], CapState]:
    """By folder, what is desired, and the state after it."""
    moment = present or node()
    decision, state = decide(moment, kubelet_bandwidths(*moment.pods), findings, strategy, state, now)
    assert decision.settings is not None
    found = {}
    for setting in decision.settings:
        assert isinstance(setting.value, int)
        found[setting.target.folder.rpartition("/")[2]] = setting.value, setting.priority
    return found, state


def test_a_pod_that_is_blamed_keeps_half_of_what_it_used() -> None:
    (cap,) = quotas(CapState(), 0.0, blamed())[0].values()
    assert cap == (200_000, Priority.POD)


def test_it_is_not_lowered_further_while_it_is_blamed() -> None:
    state = quotas(CapState(), 0.0, blamed())[1]
    (cap,) = quotas(state, 10.0, blamed(), present=node(job(cpu=2.0)))[0].values()
    assert cap == (200_000, Priority.POD)


@pytest.mark.parametrize(("seconds", "holds"), [(299.0, True), (300.0, False)])
def test_it_holds_for_five_minutes_after_the_last_blame(seconds: float, holds: bool) -> None:
    state = quotas(CapState(), 0.0, blamed())[1]
    (cap,) = quotas(state, seconds)[0].values()
    assert cap == ((200_000, Priority.POD) if holds else (-1, Priority.RELEASE))


def test_a_tenth_of_a_cpu_is_left_to_everybody() -> None:
    (cap,) = quotas(CapState(), 0.0, blamed(), present=node(job(cpu=0.1)))[0].values()
    assert cap[0] == 10_000


@pytest.mark.parametrize(
    ("finding", "strategy"),
    [
        (blamed(confidence=0.49), ON),
        (blamed(advice="migrate"), ON),
        (blamed(uid="uid-gone"), ON),
    ],
    ids=["not sure enough", "another advice", "a pod that is gone"],
)
def test_nobody_is_held_down(finding: Finding, strategy: InterferenceStrategy) -> None:
    assert set(quotas(CapState(), 0.0, finding, strategy=strategy)[0].values()) == {(-1, Priority.RELEASE)}


def test_a_pod_that_was_not_measured_is_held_down_later() -> None:
    assert set(quotas(CapState(), 0.0, blamed(), present=node(job(cpu=None)))[0].values()) == {(-1, Priority.RELEASE)}


def test_latency_sensitive_pods_are_left_alone() -> None:
    web = pod_usage("web", cpu=4.0)
    assert quotas(CapState(), 0.0, blamed(uid=web.pod.uid), present=node(web))[0] == {}


def test_a_pod_with_limits_gets_those_back_and_no_more() -> None:
    limited = pod_usage("job", "BE", cpu=4.0, limits={"cpu": "1500m"})
    released, _ = quotas(CapState(), 0.0, present=node(limited))
    assert set(released.values()) == {(150_000, Priority.RELEASE)}


def test_containers_with_limits_stay_within_the_cap_of_their_pod() -> None:
    limited = pod_usage("job", "BE", cpu=1.0, limits={"cpu": "1500m"})
    capped, _ = quotas(CapState(), 0.0, blamed(), present=node(limited))
    assert len(capped) == 2
    assert set(capped.values()) == {(50_000, Priority.POD)}


def test_where_it_is_not_switched_on_nothing_is_touched() -> None:
    assert quotas(CapState(), 0.0, blamed(), strategy=InterferenceStrategy())[0] == {}


def test_switching_it_off_lets_go_at_once() -> None:
    state = quotas(CapState(), 0.0, blamed())[1]
    assert set(quotas(state, 10.0, strategy=InterferenceStrategy())[0].values()) == {(-1, Priority.RELEASE)}


def test_the_node_slo_switches_it_on() -> None:
    enforced = EnforcedPolicy()
    assert enforced.accept(policy(extensions=extension(suppress=True, capPercent=20))) == ()
    assert enforced.interference == InterferenceStrategy(suppress=True, cap_percent=20)


def test_an_invalid_value_leaves_what_was_valid_last() -> None:
    enforced = EnforcedPolicy()
    enforced.accept(policy(extensions=extension(suppress=True)))
    (invalid,) = enforced.accept(policy(extensions=extension(suppress=True, capPercent=0)))
    assert "spec.extensions.Object.interference is not used" in str(invalid)
    assert enforced.interference == InterferenceStrategy(suppress=True)
