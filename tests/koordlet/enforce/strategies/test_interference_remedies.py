"""What remedies do to pods that disturb others: how low, to which CPUs, and that nothing stays behind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.annotations import CONFIG_SOURCE, EVICTION_POLICY
from koordinator.api.meta import OwnerReference
from koordinator.api.qos import QoSClass
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.policy import EnforcedPolicy, InterferenceStrategy
from koordinator.koordlet.enforce.strategies import cpu_suppress
from koordinator.koordlet.enforce.strategies.interference_cases import Remedy, Result
from koordinator.koordlet.enforce.strategies.interference_remedies import Measured, RemedyState, decide
from koordinator.koordlet.enforce.strategies.snapshot import BestEffortCgroups, BestEffortFolders, PodUsage, Snapshot
from koordinator.koordlet.observe.interference.detection import Finding, Indicator, Suspect
from koordinator.node.kernel_files import CPU_QUOTA, CPUSET, Target
from tests.examples import examples
from tests.koordlet.enforce.strategies.qos_fixtures import (
    BEST_EFFORT,
    kubelet_bandwidths,
    pod_usage,
    policy,
    snapshot,
)

ON = InterferenceStrategy(suppress=True)
CAP, PIN, MIGRATE = Remedy
Quotas = dict[str, tuple[int, Priority]]


def extension(**fields: Any) -> dict[str, Any]:
    return {"Object": {"interference": fields}}


def job(cpu: float | None = 4.0) -> PodUsage:
    return pod_usage("job", "BE", cpu=cpu)


def node(*pods: PodUsage) -> Snapshot:
    """``web`` is there in any case: it is the victim."""
    return snapshot(pods=(*(pods or (job(),)), pod_usage("web")))


def left_by_suppression(cpus: Iterable[int]) -> Snapshot:
    """Where CPU suppress leaves best-effort pods these CPUs."""
    folders = BestEffortFolders(BEST_EFFORT, (job().pod.cgroup,), (job().pod.containers[0].cgroup,))
    return replace(node(), best_effort=BestEffortCgroups(folders, -1, frozenset(cpus)))


def blamed(
    uid: str = "", confidence: float = 0.8, advice: str = "suppress", indicator: Indicator = Indicator.CPU
) -> Finding:
    suspect = Suspect(uid or job().pod.uid, "team/job", QoSClass.BE, 0.9, confidence, advice)
    since = datetime(2026, 3, 1, tzinfo=UTC)
    return Finding("uid-web", "shop/web", indicator, since, 30.0, 1.0, 5.0, (suspect,))


@dataclass
class Node:
    """What is decided there, one round after another."""

    present: Snapshot
    strategy: InterferenceStrategy = ON
    signal: float = 30.0
    sent: float | None = 1e6
    shapes_network: bool = False
    is_carried_out: bool = True
    settings: tuple[DesiredSetting, ...] = ()
    state: RemedyState = field(default_factory=RemedyState)

    def round(self, now: float, *findings: Finding) -> dict[str, dict[str, tuple[Any, Priority]]]:
        """By file and the last part of the folder, what is desired."""
        measured = Measured(findings, lambda *_: self.signal, lambda _: self.sent)
        decision, self.state = decide(
            self.present, kubelet_bandwidths(*self.present.pods), measured, self.strategy, self.state, now,
            shapes_network=self.shapes_network, is_carried_out=self.is_carried_out,
        )  # fmt: skip
        assert decision.settings is not None
        self.settings = decision.settings
        found: dict[str, dict[str, tuple[Any, Priority]]] = {CPU_QUOTA.key: {}, CPUSET.key: {}}
        for setting in decision.settings:
            name = setting.target.folder.rpartition("/")[2]
            found[setting.target.file.key][name] = setting.value, setting.priority
        return found

    @property
    def results(self) -> list[tuple[Remedy, Result]]:
        return [(trial.remedy, trial.result) for case in self.state.cases.values() for trial in case.trials]


def quotas(
    state: RemedyState,
    now: float,
    *findings: Finding,
    strategy: InterferenceStrategy = ON,
    present: Snapshot | None = None,
) -> tuple[Quotas, RemedyState]:
    """By folder, what is desired, and the state after it."""
    played = Node(present or node(), strategy, state=state)
    return played.round(now, *findings)[CPU_QUOTA.key], played.state


def test_a_pod_that_is_blamed_keeps_half_of_what_it_used() -> None:
    (cap,) = quotas(RemedyState(), 0.0, blamed())[0].values()
    assert cap == (200_000, Priority.POD)


def test_it_is_not_lowered_further_while_it_is_blamed() -> None:
    state = quotas(RemedyState(), 0.0, blamed())[1]
    (cap,) = quotas(state, 10.0, blamed(), present=node(job(cpu=2.0)))[0].values()
    assert cap == (200_000, Priority.POD)


def test_it_holds_for_five_minutes_after_the_last_blame_and_is_doubled_twice() -> None:
    played, caps = Node(node()), list[tuple[Any, Priority]]()
    played.round(0.0, blamed())
    played.signal = 2.0
    for now in (60.0, 359.0, 360.0, 660.0, 960.0):
        caps += played.round(now)[CPU_QUOTA.key].values()
    assert caps == [
        *[(200_000, Priority.POD)] * 2,
        (400_000, Priority.POD),
        (800_000, Priority.POD),
        (-1, Priority.RELEASE),
    ]


def test_a_tenth_of_a_cpu_is_left_to_everybody() -> None:
    (cap,) = quotas(RemedyState(), 0.0, blamed(), present=node(job(cpu=0.1)))[0].values()
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
    assert set(quotas(RemedyState(), 0.0, finding, strategy=strategy)[0].values()) == {(-1, Priority.RELEASE)}


def test_a_pod_that_was_not_measured_is_held_down_later() -> None:
    assert set(quotas(RemedyState(), 0.0, blamed(), present=node(job(cpu=None)))[0].values()) == {
        (-1, Priority.RELEASE)
    }


def test_latency_sensitive_pods_are_left_alone() -> None:
    db = pod_usage("db", cpu=4.0)
    assert quotas(RemedyState(), 0.0, blamed(uid=db.pod.uid), present=node(db))[0] == {}


def test_a_pod_with_limits_gets_those_back_and_no_more() -> None:
    limited = pod_usage("job", "BE", cpu=4.0, limits={"cpu": "1500m"})
    released, _ = quotas(RemedyState(), 0.0, present=node(limited))
    assert set(released.values()) == {(150_000, Priority.RELEASE)}


def test_containers_with_limits_stay_within_the_cap_of_their_pod() -> None:
    limited = pod_usage("job", "BE", cpu=1.0, limits={"cpu": "1500m"})
    capped, _ = quotas(RemedyState(), 0.0, blamed(), present=node(limited))
    assert len(capped) == 2
    assert set(capped.values()) == {(50_000, Priority.POD)}


def test_where_it_is_not_switched_on_nothing_is_touched() -> None:
    assert quotas(RemedyState(), 0.0, blamed(), strategy=InterferenceStrategy())[0] == {}


def test_switching_it_off_lets_go_at_once() -> None:
    state = quotas(RemedyState(), 0.0, blamed())[1]
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


def test_a_remedy_that_is_none_is_named() -> None:
    (invalid,) = EnforcedPolicy().accept(policy(extensions=extension(suppress=True, remedies=["cap", "kill"])))
    assert "kill" in invalid


def test_on_the_network_it_is_the_bandwidth_that_is_capped() -> None:
    played = Node(node(), shapes_network=True, sent=1e7)
    found = played.round(0.0, blamed(indicator=Indicator.RETRANSMITS))
    assert played.state.bandwidths() == {job().pod.uid: 40_000_000}, "half of 10 MB/s"
    assert set(found[CPU_QUOTA.key].values()) == {(-1, Priority.RELEASE)}


def test_without_network_qos_nothing_is_possible_on_the_network() -> None:
    played = Node(node())
    played.round(0.0, blamed(indicator=Indicator.RETRANSMITS))
    assert played.results == [(CAP, Result.NOT_POSSIBLE), (PIN, Result.NOT_POSSIBLE)]
    assert played.state.bandwidths() == {}


@pytest.mark.parametrize(
    ("played", "result"),
    [
        (Node(node(), shapes_network=True, sent=1e4), [(CAP, Result.NOT_POSSIBLE), (PIN, Result.NOT_POSSIBLE)]),
        (Node(node(), shapes_network=True, sent=None), []),
    ],
    ids=["it receives", "not measured just now"],
)
def test_who_hardly_sends_is_not_capped(played: Node, result: list[tuple[Remedy, Result]]) -> None:
    played.round(0.0, blamed(indicator=Indicator.DELAY))
    assert played.results == result


def test_who_is_to_move_is_held_back_no_more_and_leaves() -> None:
    played = Node(node(), InterferenceStrategy(suppress=True, remedies=(MIGRATE,)))
    played.round(0.0, blamed())
    assert played.state.leaving() == {job().pod.uid: "shop/web"}
    played.present = node(pod_usage("other", "BE"))
    played.signal = 1.0
    played.round(60.0)
    assert (played.results, played.state.leaving()) == ([(MIGRATE, Result.HELPS)], {})


def test_nobody_is_evicted_unless_the_node_slo_names_it() -> None:
    played = Node(node())
    for number in range(200):
        played.round(10.0 * number, blamed())
        assert played.state.leaving() == {}


@pytest.mark.parametrize("calm", [2, 4], ids=["while it is taken back", "after it"])
def test_who_suffers_again_without_a_remedy_gets_it_back_though_nobody_is_named(calm: int) -> None:
    """A pod whose packets are dropped behind its device sends as much with a cap as without one."""
    played, nobody = Node(node()), replace(blamed(), suspects=())
    played.round(0.0, blamed())
    played.signal = 2.0
    for number in range(calm):
        played.round(60.0 + 300.0 * number)
    played.signal = 30.0
    (cap,) = played.round(1_400.0, nobody)[CPU_QUOTA.key].values()
    assert cap == (200_000, Priority.POD)


def test_nobody_is_blamed_for_what_no_remedy_has_helped_against() -> None:
    played, nobody = Node(node()), replace(blamed(), suspects=())
    for number in range(4):
        played.round(60.0 * number, blamed())
    assert played.round(300.0, nobody)[CPUSET.key] == {}
    assert {result for _, result in played.results} == {Result.TOO_LITTLE}


def test_two_victims_of_one_pod_cap_it_once() -> None:
    other = replace(blamed(), uid="uid-db", name="shop/db")
    played = Node(node(job(), pod_usage("db")))
    played.round(0.0, blamed())
    played.present = node(job(cpu=2.0), pod_usage("db"))
    (cap,) = played.round(10.0, blamed(), other)[CPU_QUOTA.key].values()
    assert cap == (200_000, Priority.POD)
    assert len(played.state.cases) == 2


def test_a_cap_that_has_just_ended_is_no_reason_for_a_lower_one() -> None:
    """What the pod uses then is what the cap had left it."""
    cycles = blamed(indicator=Indicator.CYCLES)
    played = Node(node(), InterferenceStrategy(suppress=True, remedies=(CAP,)))
    played.round(0.0, blamed())
    played.present = node(job(cpu=2.0))
    (cap,) = played.round(60.0, blamed(), cycles)[CPU_QUOTA.key].values()
    assert cap == (200_000, Priority.POD)
    assert played.results == [(CAP, Result.TOO_LITTLE), (CAP, Result.TRYING)]


def test_a_window_after_a_cap_has_ended_it_is_measured_anew_what_the_pod_uses() -> None:
    played = Node(node(), InterferenceStrategy(suppress=True, remedies=(CAP,)))
    for now in (0.0, 60.0):
        played.round(now, blamed())
    played.present = node(job(cpu=2.0))
    (cap,) = played.round(120.0, blamed(indicator=Indicator.CYCLES))[CPU_QUOTA.key].values()
    assert cap == (100_000, Priority.POD)


def test_a_bandwidth_that_has_just_ended_is_no_reason_for_a_lower_one() -> None:
    strategy = InterferenceStrategy(suppress=True, remedies=(CAP,))
    played = Node(node(), strategy, shapes_network=True, sent=1e7)
    played.round(0.0, blamed(indicator=Indicator.DROPS))
    played.sent = 5e6
    played.round(60.0, blamed(indicator=Indicator.DROPS), blamed(indicator=Indicator.DELAY))
    assert played.state.bandwidths() == {job().pod.uid: 40_000_000}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"annotations": {CONFIG_SOURCE: "file"}}, "it may not be evicted"),
        ({"annotations": {EVICTION_POLICY: '["BEMemoryEvict"]'}}, "it may not be evicted"),
        (
            {
                "owner_references": (
                    OwnerReference(api_version="apps/v1", kind="DaemonSet", name="job", controller=True),
                )
            },
            "its DaemonSet would put it here again",
        ),
    ],
    ids=["static", "not permitted", "of a DaemonSet"],
)
def test_who_would_stay_is_not_evicted(changes: dict[str, Any], text: str) -> None:
    usage = job()
    given = msgspec.structs.replace(usage.pod.pod.metadata, **changes)
    pod = replace(usage.pod, pod=msgspec.structs.replace(usage.pod.pod, metadata=given))
    strategy = InterferenceStrategy(suppress=True, remedies=(MIGRATE,))
    played = Node(snapshot(pods=(usage._replace(pod=pod), pod_usage("web"))), strategy)
    played.round(0.0, blamed())
    (trial,) = [trial for case in played.state.cases.values() for trial in case.trials]
    assert (trial.result, trial.hold.text) == (Result.NOT_POSSIBLE, text)


def test_a_pod_leaves_for_the_victim_whom_its_cap_does_not_help() -> None:
    other = replace(blamed(), uid="uid-db", name="shop/db")
    played = Node(node(job(), pod_usage("db")), InterferenceStrategy(suppress=True, remedies=(CAP, MIGRATE)))
    played.round(0.0, blamed())
    played.round(50.0, other)
    played.signal = 2.0
    played.round(60.0, blamed())
    played.signal = 30.0
    played.round(110.0, other)
    assert played.state.leaving() == {job().pod.uid: "shop/db"}


def test_what_is_not_carried_out_is_not_measured() -> None:
    played = Node(node(), is_carried_out=False)
    for number in range(20):
        played.round(60.0 * number, blamed())
    assert played.results == [(CAP, Result.TRYING)]


STEPS = st.lists(
    st.tuples(st.sampled_from([None, Indicator.CPU, Indicator.CYCLES, Indicator.DROPS]), st.sampled_from([2.0, 90.0])),
    max_size=25,
)


@settings(max_examples=examples(40))
@given(STEPS, st.permutations([CAP, PIN]), st.booleans())
def test_nothing_stays_in_the_kernel_after_a_restart_or_when_it_is_switched_off(
    steps: list[tuple[Indicator | None, float]], order: list[Remedy], is_restarted: bool
) -> None:
    """Whatever a remedy has desired of a target, somebody desires what the kubelet gives there afterwards."""
    everything = replace(left_by_suppression(range(8)), policy=policy())
    played = Node(everything, InterferenceStrategy(suppress=True, remedies=tuple(order)), shapes_network=True, sent=1e7)
    touched: set[Target] = set()
    for number, (indicator, signal) in enumerate(steps):
        played.signal = signal
        played.round(60.0 * number, *([blamed(indicator=indicator)] if indicator else []))
        touched |= {each.target for each in played.settings if each.priority is not Priority.RELEASE}
    if is_restarted:
        played.state = RemedyState()
    else:
        played.strategy = InterferenceStrategy()
    played.round(10_000.0)
    suppressed = cpu_suppress.decide(everything, is_enabled=False).settings or ()
    released = {each.target: each.value for each in (*suppressed, *played.settings)}
    assert {target: released[target] for target in touched} == {
        target: -1 if target.file is CPU_QUOTA else frozenset(range(8)) for target in touched
    }
    assert played.state.bandwidths() == {}


@pytest.mark.parametrize("gone", ["victim", "suspect"])
def test_a_case_ends_with_its_pods(gone: str) -> None:
    played = Node(node())
    played.round(0.0, blamed())
    played.present = snapshot(pods=(job(),)) if gone == "victim" else node(pod_usage("other", "BE"))
    found = played.round(10.0)
    assert played.state.cases == {}
    assert set(found[CPU_QUOTA.key].values()) == {(-1, Priority.RELEASE)}
