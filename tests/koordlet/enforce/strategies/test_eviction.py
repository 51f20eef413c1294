"""Evictions: what triggers them, whom they take and in which order, and when they stop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.koordlet.enforce.strategies.eviction import BestEffortCPU, EvictionPlan, Feature, Inputs, plan
from koordinator.koordlet.enforce.strategies.eviction_round import EvictionRound, Prospects
from koordinator.koordlet.enforce.strategies.snapshot import PodUsage
from tests.examples import examples
from tests.koordlet.enforce.strategies.qos_fixtures import GIB, node, pod_usage, snapshot, suppression

EVICTABLE = {"koordinator.sh/eviction-enabled": "true"}


def memory_plan(
    feature: Feature, pods: tuple[PodUsage, ...], used: float = 48.0 * GIB, **threshold: Any
) -> EvictionPlan:
    """On a node of 64 GiB, of which 70 percent are the threshold."""
    policy = suppression(memoryEvictThresholdPercent=70, evictEnabledPriorityThreshold=9999, **threshold)
    return plan(Inputs(snapshot(policy=policy, pods=pods, node_memory=used)), [feature])


def victims(found: EvictionPlan, *, refused: tuple[str, ...] = (), gone: tuple[str, ...] = ()) -> list[str]:
    """Names, when the evictions of ``refused`` fail and ``gone`` were evicted before."""
    round_ = EvictionRound(found.tasks, Prospects(going=frozenset(f"uid-{name}" for name in gone)))
    names = []
    while (victim := round_.next_victim()) is not None:
        name = victim.usage.pod.pod.metadata.name
        if name not in refused:
            round_.count(victim.usage)
            names.append(name)
    return names


def test_below_the_threshold_nobody_goes() -> None:
    assert memory_plan(Feature.BE_MEMORY, (pod_usage("a", "BE", memory=GIB),), used=44.0 * GIB).tasks == ()


@pytest.mark.parametrize(("used", "goes"), [(4.0, []), (11.0, []), (12.0, ["a"])])
def test_the_pool_of_huge_pages_is_neither_used_nor_there_to_be_used(used: float, goes: list[str]) -> None:
    """48 of the 64 GiB are huge pages: pods share 16, of which 70 percent are 11.2."""
    policy = suppression(memoryEvictThresholdPercent=70, evictEnabledPriorityThreshold=9999)
    pods = (pod_usage("a", "BE", memory=1.2 * GIB), pod_usage("b", "BE", memory=0.5 * GIB))
    given = snapshot(policy=policy, pods=pods, node_memory=used * GIB, huge_pages=48.0 * GIB)
    assert victims(plan(Inputs(given), [Feature.BE_MEMORY])) == goes


def test_a_node_of_huge_pages_alone_evicts_nobody() -> None:
    policy = suppression(memoryEvictThresholdPercent=70)
    given = snapshot(policy=policy, pods=(pod_usage("a", "BE", memory=GIB),), huge_pages=64.0 * GIB)
    assert plan(Inputs(given), [Feature.BE_MEMORY]).tasks == ()


def test_the_largest_of_the_lowest_priority_go_until_the_lower_percentage_is_reached() -> None:
    """75 percent are used, 68 are the lower percentage: 4.48 GiB have to go."""
    pods = (
        pod_usage("web", memory=30.0 * GIB),
        pod_usage("important", "BE", memory=9.0 * GIB, priority=5999),
        pod_usage("small", "BE", memory=1.0 * GIB, priority=5000),
        pod_usage("large", "BE", memory=4.0 * GIB, priority=5000),
    )
    assert victims(memory_plan(Feature.BE_MEMORY, pods)) == ["large", "small"]


def test_a_refused_eviction_is_followed_by_the_next_candidate() -> None:
    pods = (pod_usage("a", "BE", memory=6.0 * GIB), pod_usage("b", "BE", memory=5.0 * GIB))
    assert victims(memory_plan(Feature.BE_MEMORY, pods), refused=("a",)) == ["b"]


def test_a_pod_that_goes_already_counts() -> None:
    pods = (pod_usage("a", "BE", memory=6.0 * GIB), pod_usage("b", "BE", memory=5.0 * GIB))
    assert victims(memory_plan(Feature.BE_MEMORY, pods), gone=("a",)) == []


@pytest.mark.parametrize("feature", [Feature.BE_MEMORY, Feature.MEMORY])
def test_a_static_pod_is_no_candidate(feature: Feature) -> None:
    """The kubelet has it from a file and starts it anew."""
    source = {"kubernetes.io/config.source": "file"}
    pods = (
        pod_usage("static", "BE", memory=9.0 * GIB, annotations=source, labels=EVICTABLE),
        pod_usage("other", "BE", memory=5.0 * GIB, labels=EVICTABLE),
    )
    assert victims(memory_plan(feature, pods)) == ["other"]


def test_only_pods_that_allow_it_are_evicted_by_priority() -> None:
    pods = (
        pod_usage("no", memory=9.0 * GIB, priority=9000),
        pod_usage("yes", memory=8.0 * GIB, priority=9000, labels=EVICTABLE),
    )
    assert victims(memory_plan(Feature.MEMORY, pods)) == ["yes"]


def test_a_pods_own_list_of_features_is_honoured() -> None:
    pods = (
        pod_usage("a", "BE", memory=6.0 * GIB, annotations={"koordinator.sh/eviction-policy": '["CPUEvict"]'}),
        pod_usage("b", "BE", memory=6.0 * GIB, annotations={"koordinator.sh/eviction-policy": "nonsense"}),
        pod_usage("c", "BE", memory=5.0 * GIB, annotations={"koordinator.sh/eviction-policy": '["BEMemoryEvict"]'}),
    )
    assert victims(memory_plan(Feature.BE_MEMORY, pods)) == ["c"]


def test_settings_that_contradict_each_other_are_named() -> None:
    found = memory_plan(Feature.BE_MEMORY, (), memoryEvictLowerPercent=80)
    assert found.tasks == ()
    assert "memoryEvictLowerPercent 80 must be below memoryEvictThresholdPercent 70" in found.problems[0]


def satisfied(**changes: float) -> BestEffortCPU:
    figures = {"usage": 2000.0, "request": 10_000.0, "limit": 2000.0}
    figures |= {"last_usage": 2000.0, "last_request": 10_000.0, "last_limit": 2000.0}
    return BestEffortCPU(**(figures | changes))


def be_cpu_plan(given_: BestEffortCPU) -> EvictionPlan:
    policy = suppression(cpuEvictBESatisfactionLowerPercent=30, cpuEvictBESatisfactionUpperPercent=60)
    pods = tuple(
        pod_usage(name, "BE", cpu=cpu, requests={"kubernetes.io/batch-cpu": "2000"})
        for name, cpu in (("a", 0.5), ("b", 1.0), ("c", 0.1))
    )
    return plan(Inputs(snapshot(policy=policy, pods=pods), given_), [Feature.BE_CPU])


def test_best_effort_pods_go_when_they_get_too_little_cpu() -> None:
    """A fifth of 10 CPUs: four have to go, so that the rest gets three fifths."""
    assert victims(be_cpu_plan(satisfied())) == ["b", "a"]


@pytest.mark.parametrize(
    "change", [{"usage": 1000.0}, {"last_usage": 1000.0}, {"limit": 4000.0}, {"last_limit": 4000.0}]
)
def test_nobody_goes_for_cpu_that_is_not_used_or_not_short(change: dict[str, float]) -> None:
    assert be_cpu_plan(satisfied(**change)).tasks == ()


def test_a_pod_that_releases_nothing_of_what_is_short_stays() -> None:
    policy = suppression(
        cpuAllocatableEvictThresholdPercent=100,
        cpuAllocatableEvictLowerPercent=90,
        allocatableEvictPriorityThreshold=5999,
    )
    pods = (
        pod_usage("free", "BE", priority=3000, labels=EVICTABLE),
        pod_usage("batch", "BE", priority=5500, labels=EVICTABLE, requests={"kubernetes.io/batch-cpu": "4000"}),
    )
    given_ = snapshot(policy=policy, pods=pods, node=node(batch_cpu="2000"))
    assert victims(plan(Inputs(given_), [Feature.CPU_ALLOCATABLE])) == ["batch"]


def test_free_pods_go_before_batch_pods_when_best_effort_pods_get_too_little_cpu() -> None:
    policy = suppression(cpuEvictBESatisfactionLowerPercent=30, cpuEvictBESatisfactionUpperPercent=60)
    pods = (
        pod_usage("batch", "BE", cpu=2.0, priority=5500, requests={"kubernetes.io/batch-cpu": "4000"}),
        pod_usage("more", "BE", cpu=1.0, priority=5500, requests={"kubernetes.io/batch-cpu": "4000"}),
        pod_usage("free", "BE", cpu=0.1, priority=3500, requests={"kubernetes.io/free-cpu": "2000"}),
    )
    found = plan(Inputs(snapshot(policy=policy, pods=pods), satisfied()), [Feature.BE_CPU])
    assert found.tasks[0].need == {"best-effort-cpu": 3999}
    assert victims(found) == ["free", "batch"]
    # A free pod that stays releases nothing, and the batch pods release as much as is needed.
    assert victims(found, refused=("free",)) == ["batch"]


@pytest.mark.parametrize(("offered", "gone"), [("4000", []), ("2000", ["free"]), ("0", ["free"])])
def test_free_pods_go_when_more_is_requested_than_is_left(offered: str, gone: list[str]) -> None:
    policy = suppression(
        cpuAllocatableEvictThresholdPercent=100,
        cpuAllocatableEvictLowerPercent=90,
        allocatableEvictPriorityThreshold=5999,
    )
    pods = (
        pod_usage("free", "BE", priority=3500, labels=EVICTABLE, requests={"kubernetes.io/free-cpu": "3000"}),
        pod_usage("batch", "BE", priority=5500, labels=EVICTABLE, requests={"kubernetes.io/batch-cpu": "1000"}),
    )
    given_ = snapshot(policy=policy, pods=pods, node=node(batch_cpu="5000", free_cpu=offered))
    assert victims(plan(Inputs(given_), [Feature.CPU_ALLOCATABLE])) == gone


def test_where_no_pod_requests_free_resources_they_are_not_named() -> None:
    policy = suppression(
        cpuAllocatableEvictThresholdPercent=100,
        cpuAllocatableEvictLowerPercent=90,
        allocatableEvictPriorityThreshold=5999,
    )
    pods = (pod_usage("batch", "BE", priority=5500, requests={"kubernetes.io/batch-cpu": "4000"}),)
    given_ = snapshot(policy=policy, pods=pods, node=node(batch_cpu="2000"))
    (task,) = plan(Inputs(given_), [Feature.CPU_ALLOCATABLE]).tasks
    assert "free" not in task.reason


pods_of_any_kind = st.lists(
    st.tuples(
        st.sampled_from(["BE", "LS", ""]),
        st.one_of(st.none(), st.integers(3000, 9999)),
        st.floats(0, 20 * GIB),
        st.sampled_from([{}, EVICTABLE]),
        st.sampled_from([{}, {"koordinator.sh/eviction-priority": "5"}, {"koordinator.sh/eviction-priority": "x"}]),
    ),
    max_size=8,
)


@settings(max_examples=examples(40), deadline=None)
@given(pods_of_any_kind, st.sampled_from([Feature.BE_MEMORY, Feature.MEMORY]), st.randoms(use_true_random=False))
def test_the_order_is_total_whatever_order_kubelet_reports_the_pods_in(
    pods: list[tuple[str, int | None, float, dict[str, str], dict[str, str]]], feature: Feature, random: Any
) -> None:
    usages = [
        pod_usage(f"p{number}", qos, memory=memory, priority=priority, labels=labels, annotations=annotations)
        for number, (qos, priority, memory, labels, annotations) in enumerate(pods)
    ]
    shuffled = list(usages)
    random.shuffle(shuffled)
    assert victims(memory_plan(feature, tuple(usages))) == victims(memory_plan(feature, tuple(shuffled)))


@settings(max_examples=examples(40), deadline=None)
@given(pods_of_any_kind)
def test_no_more_go_than_are_needed(
    pods: list[tuple[str, int | None, float, dict[str, str], dict[str, str]]],
) -> None:
    usages = {
        f"p{number}": pod_usage(f"p{number}", qos, memory=memory, priority=priority, labels=labels)
        for number, (qos, priority, memory, labels, _) in enumerate(pods)
    }
    found = memory_plan(Feature.BE_MEMORY, tuple(usages.values()))
    taken = victims(found)
    released = sum(int(usages[name].memory or 0) for name in taken[:-1])
    assert not taken or released < found.tasks[0].need["memory"]
