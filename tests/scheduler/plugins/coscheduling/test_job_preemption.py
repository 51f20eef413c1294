"""Job preemption through the whole scheduler: all members get room, or nobody is evicted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.duration import GoDuration
from koordinator.api.labels import DISABLE_PREEMPTIBLE, QUOTA_PREEMPTIBLE
from koordinator.api.pod import Pod
from koordinator.scheduler.configuration.koordinator_arguments import CoschedulingArgs
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.plugin import Coscheduling
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind
from tests.scheduler.fakes import make_pod, make_profile
from tests.scheduler.ground.clusters import listed
from tests.scheduler.plugins.coscheduling.gang_fakes import member
from tests.scheduler.plugins.coscheduling.test_plugin import nodes
from tests.scheduler.running_scheduler import RunningScheduler, simulate


def profile(view: ClusterView) -> Profile:
    base = make_profile(view)
    args = CoschedulingArgs(default_timeout=GoDuration(seconds=600), enable_preemption=True)
    own = {"Coscheduling": Coscheduling(args, view), "DefaultPreBind": DefaultPreBind(None, view)}
    return Profile(base.scheduler_name, {**base.plugins, **own}, listed(base.order, Coscheduling))


def important(pod: Pod, priority: int = 10) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))


def running(name: str, node: int, priority: int = 0, labels: dict[str, str] | None = None) -> Pod:
    pod = important(make_pod(name, labels=labels or {}), priority)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=f"n{node}"))


def play(on_nodes: list[Pod], pods: list[Pod], *slots: int) -> tuple[set[str], set[str]]:
    """The pods that were evicted, and those of ``pods`` that have a node in the end."""

    async def story(fixture: RunningScheduler) -> None:
        for pod in on_nodes:
            fixture.api.store(pod)
        await fixture.until_idle()
        for pod in pods:
            fixture.api.store(pod)
        await fixture.until_idle()
        await fixture.until_idle(60)

    fixture = simulate(story, lambda: nodes(*slots), profile)
    evicted = {pod.metadata.name for pod in on_nodes} - {
        pod.metadata.name for pod in fixture.api.objects("pods").values()
    }
    return evicted, {name for name, _ in fixture.api.bindings}


def gang(count: int, minimum: int | None = None, **others: Any) -> list[Pod]:
    return [important(member("g", number, minimum or count, **others)) for number in range(count)]


def test_all_members_get_room_at_once() -> None:
    evicted, bound = play([running("a", 0), running("b", 1)], gang(2), 1, 1)
    assert (evicted, bound) == ({"a", "b"}, {"g-0", "g-1"})


@pytest.mark.parametrize(
    ("pods", "preemptor"),
    [([important(member("g", 0, 1))], "default/g"), ([important(make_pod("p"))], "default/p")],
    ids=["a gang", "a single pod"],
)
def test_victims_are_told_for_whom_they_leave(pods: list[Pod], preemptor: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(running("a", 0))
        await fixture.until_idle()
        for pod in pods:
            fixture.api.store(pod)
        await fixture.until_idle()

    fixture = simulate(story, lambda: nodes(1), profile)
    reported = [message for name, reason, message in fixture.api.conditions if reason == "PreemptionByScheduler"]
    trigger = pods[0].metadata.key
    assert reported == [
        "koord-scheduler: preempting to accommodate higher priority pods, "
        f"preemptor: {preemptor}, triggerPod: {trigger}"
    ]


def test_a_gang_that_would_not_fit_evicts_nobody() -> None:
    evicted, bound = play([running("a", 0), running("b", 1)], gang(3), 1, 1)
    assert (evicted, bound) == (set(), set())


def test_members_do_not_all_count_on_the_same_capacity() -> None:
    evicted, bound = play([running("a", 0), running("b", 1, priority=20)], gang(2), 1, 1)
    assert (evicted, bound) == (set(), set())


def test_members_that_have_a_node_already_keep_it() -> None:
    evicted, bound = play([running("a", 0)], gang(2), 1, 1)
    assert (evicted, bound) == ({"a"}, {"g-0", "g-1"})


def test_only_those_leave_that_have_to() -> None:
    evicted, bound = play([running("a", 0), running("b", 0), running("c", 0)], gang(2), 3)
    assert (len(evicted), bound) == (2, {"g-0", "g-1"})


def test_a_node_where_nobody_has_to_leave_comes_first() -> None:
    evicted, bound = play([running("a", 0), running("b", 0)], gang(2), 3)
    assert (len(evicted), bound) == (1, {"g-0", "g-1"})


def test_the_less_important_leave() -> None:
    evicted, _ = play([running("a", 0, 5), running("b", 1, 1)], gang(1), 1, 1)
    assert evicted == {"b"}


def test_a_single_pod_is_a_job_of_one() -> None:
    evicted, bound = play([running("a", 0)], [important(make_pod("p"))], 1)
    assert (evicted, bound) == ({"a"}, {"p"})


@pytest.mark.parametrize("label", [{DISABLE_PREEMPTIBLE: "true"}, {QUOTA_PREEMPTIBLE: "false"}])
def test_pods_that_must_not_be_preempted_stay(label: dict[str, str]) -> None:
    evicted, bound = play([running("a", 0, labels=label), running("b", 1)], gang(2), 1, 1)
    assert (evicted, bound) == (set(), set())


def test_a_gang_that_never_preempts_evicts_nobody() -> None:
    def never(pod: Pod) -> Pod:
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, preemption_policy="Never"))

    evicted, bound = play([running("a", 0)], [never(pod) for pod in gang(1)], 1)
    assert (evicted, bound) == (set(), set())


pods_on_nodes = st.lists(st.tuples(st.integers(0, 2), st.sampled_from((0, 5, 20))), max_size=6)
"""The node and the priority of each."""


@settings(max_examples=15)
@given(pods_on_nodes, st.integers(1, 5))
def test_either_all_members_are_bound_or_nobody_is_evicted(placed: list[tuple[int, int]], size: int) -> None:
    slots, on_nodes = [2, 2, 2], []
    free = list(slots)
    for number, (node, priority) in enumerate(placed):
        if free[node]:
            free[node] -= 1
            on_nodes.append(running(f"r{number}", node, priority))
    evicted, bound = play(on_nodes, gang(size), *slots)
    can_leave = sum(1 for pod in on_nodes if (pod.spec.priority or 0) < 10)
    if size <= sum(free) + can_leave:
        assert (len(bound), len(evicted)) == (size, max(0, size - sum(free)))
    else:
        assert (bound, evicted) == (set(), set())


@pytest.mark.parametrize(("members", "result"), [(2, "preempt success"), (3, "preemption not helpful")])
def test_how_long_it_took_is_measured_in_the_name_of_the_group(members: int, result: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        for pod in (running("a", 0), running("b", 1), *gang(members)):
            fixture.api.store(pod)
        await fixture.until_idle()

    fixture = simulate(story, lambda: nodes(1, 1), profile)
    labels = {"jobName": "default/g", "result": result}
    counted = fixture.registry.get_sample_value("scheduler_job_preemption_duration_seconds_count", labels)
    assert counted is not None
    assert counted >= 1
