"""CPU burst: both ways of it, its tokens, and what is left when it is off."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.koordlet.enforce.strategies.cpu_burst import BurstState, NodeLoad, RaisedQuota, decide, node_load
from koordinator.koordlet.enforce.strategies.snapshot import Decision, PodUsage, Snapshot
from koordinator.koordlet.enforce.strategy_table import shared_cpu_average
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.kinds import MetricKind
from koordinator.koordlet.observe.recent_usage import RecentUsage
from koordinator.koordlet.pods.node_pod import node_pods
from koordinator.node.kernel_files import CPU_BURST, CPU_QUOTA, KernelFile
from tests.koordlet.enforce.strategies.qos_fixtures import LAYOUT, kubelet_bandwidths, pod_usage, policy, snapshot

BURST = {
    "policy": "auto",
    "cpuBurstPercent": 1000,
    "cfsQuotaBurstPercent": 300,
    "cfsQuotaBurstPeriodSeconds": -1,
    "sharePoolThresholdPercent": 50,
}


def throttled_pod(**given_: Any) -> PodUsage:
    defaults: dict[str, Any] = {"cpu": 1.0, "limits": {"cpu": "1"}, "throttled": 0.5}
    return pod_usage("web", **(defaults | given_))


def two_containers(limits: tuple[dict[str, str], ...]) -> PodUsage:
    document: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web"},
        "spec": {
            "containers": [
                {"name": f"c{number}", "image": "i", "resources": {"limits": each}}
                for number, each in enumerate(limits)
            ]
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [
                {"name": f"c{number}", "containerID": f"containerd://c{number}"} for number in range(len(limits))
            ],
        },
    }
    (made,) = node_pods([convert(document, Pod)], LAYOUT)
    return PodUsage(made)


def make_snapshot(pod: PodUsage, node_cpu: float = 1.0, **strategy: Any) -> Snapshot:
    return snapshot(policy=policy(cpuBurstStrategy=BURST | strategy), pods=(pod,), node_cpu=node_cpu)


def burst(moment: Snapshot, *given_: Any, **more: Any) -> tuple[Decision, BurstState]:
    """With all that the node uses being used by those that share CPUs."""
    return decide(moment, kubelet_bandwidths(*moment.pods), moment.node_cpu, *given_, **more)


def values(decision: Decision, file: KernelFile) -> list[Any]:
    """Of the container, then of the pod."""
    assert decision.settings is not None
    return [setting.value for setting in decision.settings if setting.target.file is file]


def test_the_kernel_burst_stays_within_the_quota_as_kernels_demand() -> None:
    decision, _ = burst(make_snapshot(throttled_pod()), BurstState(), 0.0, Random(1).uniform)
    assert values(decision, CPU_BURST) == [100_000, 100_000]


def resized_pod(requested: str, granted: str) -> PodUsage:
    """As the kubelet lists it before it has resized it."""
    document: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": requested}}}]},
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "conditions": [{"type": "PodResizeInProgress", "status": "True"}],
            "containerStatuses": [
                {"name": "c", "containerID": "containerd://c", "resources": {"limits": {"cpu": granted}}}
            ],
        },
    }
    (made,) = node_pods([convert(document, Pod)], LAYOUT)
    return PodUsage(made)


def test_a_pod_that_is_to_get_less_bursts_no_more_than_the_kubelet_is_about_to_give_it() -> None:
    """The kernel refuses a quota below the burst."""
    decision, _ = burst(make_snapshot(resized_pod("400m", "1")), BurstState(), 0.0, Random(1).uniform)
    assert values(decision, CPU_BURST) == [40_000, 40_000]


def test_a_pod_that_is_to_get_more_bursts_as_it_was_granted() -> None:
    decision, _ = burst(make_snapshot(resized_pod("2", "1")), BurstState(), 0.0, Random(1).uniform)
    assert values(decision, CPU_BURST) == [100_000, 100_000]


def test_a_throttled_container_gets_a_fifth_more_and_its_pod_as_much() -> None:
    decision, state = burst(make_snapshot(throttled_pod()), BurstState(), 0.0, Random(1).uniform)
    assert values(decision, CPU_QUOTA) == [120_000, 120_000]
    decision, _ = burst(make_snapshot(throttled_pod()), state, 1.0, Random(1).uniform)
    assert values(decision, CPU_QUOTA) == [144_000, 144_000]


def test_on_an_overloaded_node_quotas_go_down_to_the_limit() -> None:
    decision, _ = burst(
        make_snapshot(throttled_pod(), node_cpu=7.0),
        BurstState(quotas={"containerd://web": RaisedQuota(110_000, 100_000)}),
        0.0,
        Random(1).uniform,
    )
    assert values(decision, CPU_QUOTA) == [100_000, 100_000]


def test_what_is_switched_off_has_the_limits_of_kubelet() -> None:
    state = BurstState(quotas={"containerd://web": RaisedQuota(250_000, 100_000)})
    for snapshot_, is_enabled in (
        (make_snapshot(throttled_pod(), policy="none"), True),
        (make_snapshot(throttled_pod()), False),
    ):
        decision, _ = burst(snapshot_, state, 0.0, Random(1).uniform, is_enabled=is_enabled)
        assert values(decision, CPU_QUOTA) == [100_000, 100_000]
        assert values(decision, CPU_BURST) == [0, 0]


def test_the_annotation_of_a_pod_goes_before_the_node() -> None:
    pod = throttled_pod(annotations={"koordinator.sh/cpuBurst": '{"policy":"none"}'})
    decision, _ = burst(make_snapshot(pod), BurstState(), 0.0, Random(1).uniform)
    assert values(decision, CPU_QUOTA) == [100_000, 100_000]


def test_an_annotation_that_is_no_json_changes_nothing() -> None:
    pod = throttled_pod(annotations={"koordinator.sh/cpuBurst": "{"})
    decision, _ = burst(make_snapshot(pod), BurstState(), 0.0, Random(1).uniform)
    assert values(decision, CPU_QUOTA) == [120_000, 120_000]


def test_pods_with_cpus_of_their_own_and_best_effort_pods_are_left_alone() -> None:
    for qos in ("LSE", "LSR", "BE"):
        decision, _ = burst(make_snapshot(throttled_pod(qos=qos)), BurstState(), 0.0, Random(1).uniform)
        assert decision.settings == ()


def test_a_pod_with_allocated_cpus_is_left_alone() -> None:
    allocated = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}'}
    decision, _ = burst(
        make_snapshot(throttled_pod(qos="", annotations=allocated)), BurstState(), 0.0, Random(1).uniform
    )
    assert decision.settings == ()


def test_where_a_core_is_worth_two_everything_starts_from_half_the_limit() -> None:
    decision, _ = burst(make_snapshot(throttled_pod()), BurstState(), 0.0, Random(1).uniform, normalization_ratio=2.0)
    assert values(decision, CPU_QUOTA) == [60_000, 60_000]
    assert values(decision, CPU_BURST) == [50_000, 50_000]
    system, _ = burst(
        make_snapshot(throttled_pod(qos="SYSTEM")), BurstState(), 0.0, Random(1).uniform, normalization_ratio=2.0
    )
    assert values(system, CPU_QUOTA) == [120_000, 120_000]


def test_a_quota_follows_its_limit_when_cpus_become_worth_more() -> None:
    """A quota that nothing lowers would keep the container at what plain CPUs were worth."""
    raised = BurstState(quotas={"containerd://web": RaisedQuota(120_000, 100_000)})
    calm = make_snapshot(throttled_pod(throttled=0.0))
    decision, state = burst(calm, raised, 0.0, Random(1).uniform, normalization_ratio=2.0)
    assert values(decision, CPU_QUOTA) == [60_000, 60_000]
    assert state.quotas == {"containerd://web": RaisedQuota(60_000, 50_000)}


def test_a_pod_without_a_limit_bursts_as_much_as_its_containers() -> None:
    open_pod = two_containers(limits=({"cpu": "500m"}, {}))
    decision, _ = burst(make_snapshot(open_pod, cpuBurstPercent=50), BurstState(), 0.0, Random(1).uniform)
    assert values(decision, CPU_BURST) == [25_000, 0, 25_000]


def test_how_busy_the_shared_cpus_are() -> None:
    for cores, load in ((3.0, NodeLoad.IDLE), (3.7, NodeLoad.COOLING), (4.0, NodeLoad.OVERLOAD)):
        given_ = make_snapshot(throttled_pod())
        assert given_.policy is not None
        assert given_.policy.cpu_burst_strategy is not None
        assert node_load(given_, cores, given_.policy.cpu_burst_strategy) is load


def test_nothing_is_raised_while_nobody_knows_how_busy_the_shared_cpus_are() -> None:
    moment = make_snapshot(throttled_pod())
    decision, _ = decide(moment, kubelet_bandwidths(*moment.pods), None, BurstState(), 0.0, Random(1).uniform)
    assert (values(decision, CPU_QUOTA), decision.reason) == ([100_000, 100_000], "the node is unknown")


@given(st.lists(st.tuples(st.floats(0, 8), st.floats(0, 1), st.floats(0, 8), st.floats(-5, 5)), max_size=30))
def test_quotas_stay_between_the_limit_and_the_ceiling_whatever_the_load_and_the_clock(
    rounds: list[tuple[float, float, float, float]],
) -> None:
    state, now, random = BurstState(), 100.0, Random(1).uniform
    for cpu, throttled, node_cpu, seconds in rounds:
        now += seconds
        pod = throttled_pod(cpu=cpu, throttled=throttled)
        decision, state = burst(make_snapshot(pod, node_cpu, cfsQuotaBurstPeriodSeconds=30), state, now, random)
        assert all(100_000 <= quota <= 300_000 for quota in values(decision, CPU_QUOTA))
        assert all(abs(tokens.left) <= tokens.capacity for tokens in state.tokens.values())


class MeanUsage:
    """Stands for the metric cache: the mean of the last seconds of the node, and of each pod by its UID."""

    interval = 1.0

    def __init__(self, node: float | None, **pods: float) -> None:
        self.node, self.pods = node, pods
        self.windows: set[float] = set()

    def average(self, kind: MetricKind, seconds: float) -> float | None:
        assert kind is kinds.NODE_CPU_USAGE
        self.windows.add(seconds)
        return self.node

    def averages(self, kind: MetricKind, seconds: float, values: Iterable[str]) -> list[float]:
        assert kind is kinds.POD_CPU_USAGE
        self.windows.add(seconds)
        return [self.pods[uid.removeprefix("uid-")] for uid in values]


def test_the_load_is_the_mean_of_five_rounds_and_ten_seconds_at_most_without_pods_that_do_not_share() -> None:
    pods = (pod_usage("web"), pod_usage("own", "LSR"), pod_usage("batch", "BE"))
    for interval, window in ((1.0, 5.0), (3.0, 10.0)):
        usage = MeanUsage(6.0, web=3.0, own=1.0, batch=1.5)
        assert shared_cpu_average(cast("RecentUsage", usage), snapshot(pods=pods), interval) == 3.5
        assert usage.windows == {window}


def test_the_load_of_a_node_that_was_not_measured_is_not_known() -> None:
    assert shared_cpu_average(cast("RecentUsage", MeanUsage(None)), snapshot(), 1.0) is None
