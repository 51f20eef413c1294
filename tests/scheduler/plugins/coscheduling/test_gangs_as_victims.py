"""Gangs whose members are preempted: with ``gangPolicy: Whole`` a gang gives up only those that it can do without, or
leaves whole, whoever preempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.codec import convert, to_document
from koordinator.api.duration import GoDuration
from koordinator.api.kinds import POD_DISRUPTION_BUDGETS
from koordinator.api.labels import DISABLE_PREEMPTIBLE
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.workload import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from koordinator.scheduler.configuration.koordinator_arguments import CoschedulingArgs
from koordinator.scheduler.configuration.upstream_arguments import DefaultPreemptionArgs
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.documents import GangServices
from koordinator.scheduler.plugins.coscheduling.plugin import Coscheduling
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind
from koordinator.scheduler.plugins.default_preemption import DefaultPreemption
from koordinator.scheduler.plugins.inter_pod_affinity.plugin import InterPodAffinity
from tests.real_world.faulty_api_server import FAULTS, bindings
from tests.scheduler.fakes import make_node, make_pod, make_profile
from tests.scheduler.ground.clusters import listed
from tests.scheduler.plugins.coscheduling.gang_fakes import member
from tests.scheduler.plugins.coscheduling.test_job_preemption import important
from tests.scheduler.plugins.coscheduling.test_plugin import nodes
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

BY_JOB = True
BY_POD = False
WHO = pytest.mark.parametrize("by_job", [BY_POD, BY_JOB], ids=["DefaultPreemption", "Coscheduling"])


def profile(view: ClusterView, *, by_job: bool, policy: str = "Whole") -> Profile:
    """Coscheduling preempts for jobs, or DefaultPreemption for single pods."""
    base = make_profile(view)
    args = CoschedulingArgs(default_timeout=GoDuration(seconds=600), enable_preemption=by_job, gang_policy=policy)
    own: dict[str, Any] = {"Coscheduling": Coscheduling(args, view), "DefaultPreBind": DefaultPreBind(None, view)}
    order = listed(base.order, Coscheduling)
    if not by_job:
        own["DefaultPreemption"] = DefaultPreemption(DefaultPreemptionArgs(), view)
        order = replace(order, post_filter=("Coscheduling", "DefaultPreemption"))
    return Profile(base.scheduler_name, {**base.plugins, **own}, order)


def running(pod: Pod, node: int, priority: int = 0, labels: dict[str, str] | None = None) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, labels=labels or {})
    placed = msgspec.structs.replace(important(pod, priority), metadata=metadata)
    return msgspec.structs.replace(placed, spec=msgspec.structs.replace(placed.spec, node_name=f"n{node}"))


def gang(name: str, minimum: int, *on_nodes: int, **others: Any) -> list[Pod]:
    return [running(member(name, number, minimum), node, **others) for number, node in enumerate(on_nodes)]


def play(
    there: list[Pod],
    pods: list[Pod],
    *slots: int,
    by_job: bool,
    policy: str = "Whole",
    budgets: Sequence[PodDisruptionBudget] = (),
) -> RunningScheduler:
    async def story(fixture: RunningScheduler) -> None:
        for budget in budgets:
            fixture.api.store(budget, POD_DISRUPTION_BUDGETS)
        for each in there:
            fixture.api.store(each)
        await fixture.until_idle()
        for pod in pods:
            fixture.api.store(important(pod))
        await fixture.until_idle()
        await fixture.until_idle(60)

    return simulate(story, lambda: nodes(*slots), partial(profile, by_job=by_job, policy=policy))


def evicted(fixture: RunningScheduler, there: list[Pod]) -> set[str]:
    left = {pod.metadata.name for pod in fixture.api.objects("pods").values()}
    return {each.metadata.name for each in there} - left


def result(there: list[Pod], pods: list[Pod], *slots: int, by_job: bool, policy: str = "Whole") -> Any:
    """Who was evicted, and who has a node in the end."""
    fixture = play(there, pods, *slots, by_job=by_job, policy=policy)
    return evicted(fixture, there), {name for name, _ in fixture.api.bindings}


@WHO
def test_a_gang_that_would_be_too_small_leaves_whole(by_job: bool) -> None:
    assert result(gang("low", 2, 0, 1), [make_pod("p")], 1, 1, by_job=by_job) == ({"low-0", "low-1"}, {"p"})


@WHO
def test_by_default_a_member_leaves_alone(by_job: bool) -> None:
    left, bound = result(gang("low", 2, 0, 1), [make_pod("p")], 1, 1, by_job=by_job, policy="Members")
    assert (len(left), bound) == (1, {"p"})


@WHO
def test_a_member_that_is_spare_leaves_alone(by_job: bool) -> None:
    left, bound = result(gang("low", 1, 0, 1), [make_pod("p")], 1, 1, by_job=by_job)
    assert (len(left), bound) == (1, {"p"})


@WHO
def test_a_gang_spares_no_more_than_are_beyond_its_minimum(by_job: bool) -> None:
    there = gang("low", 2, 0, 0, 0)
    assert len(result(there, [make_pod("p")], 3, by_job=by_job)[0]) == 1
    assert len(result(there, [make_pod("p", cpu="2")], 3, by_job=by_job)[0]) == 3


@WHO
def test_a_gang_that_cannot_leave_whole_stays(by_job: bool) -> None:
    there = [running(member("low", 0, 2), 0), running(member("low", 1, 2), 1, priority=20)]
    fixture = play(there, [make_pod("p")], 1, 1, by_job=by_job)
    assert (evicted(fixture, there), fixture.api.bindings) == (set(), [])
    why = [message for name, _, message in fixture.api.conditions if name == "p"]
    assert "1 Gang members that do not leave, since their gang cannot leave whole" in why[-1]


def test_a_gang_with_a_member_that_must_not_be_preempted_stays() -> None:
    label = {DISABLE_PREEMPTIBLE: "true"}
    there = [running(member("low", 0, 2), 0), running(member("low", 1, 2), 1, labels=label)]
    assert result(there, [make_pod("p")], 1, 1, by_job=BY_JOB) == (set(), set())


@WHO
def test_the_members_on_all_nodes_count_as_harm(by_job: bool) -> None:
    """Two pods on the second node, of the same priority, are less than the three of the gang."""
    there = [*gang("low", 3, 0, 1, 1), running(make_pod("a", cpu="1"), 2), running(make_pod("b", cpu="1"), 2)]
    fixture = play(there, [make_pod("p", cpu="2")], 1, 2, 2, by_job=by_job)
    assert evicted(fixture, there) == {"a", "b"}


@WHO
def test_gangs_of_a_group_leave_together(by_job: bool) -> None:
    there = [running(member(name, 0, 1, together=("g", "h")), node) for node, name in enumerate(("g", "h"))]
    assert result(there, [make_pod("p")], 1, 1, by_job=by_job) == ({"g-0", "h-0"}, {"p"})


@WHO
def test_what_the_members_elsewhere_leave_is_not_evicted_for(by_job: bool) -> None:
    """Where the gang leaves whole, its spare members leave, too, and others can stay."""
    there = [*gang("low", 2, 0, 0, 0), running(make_pod("a"), 0, priority=5)]
    assert result(there, [make_pod("p", cpu="3")], 4, by_job=by_job) == ({"low-0", "low-1", "low-2"}, {"p"})


def test_budgets_of_members_on_other_nodes_count() -> None:
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name="b", namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "low"})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=0),
    )
    low = [running(member("low", 0, 2), 0), running(member("low", 1, 2), 1, labels={"app": "low"})]
    there = [*low, running(make_pod("a"), 2, priority=5)]
    fixture = play(there, [make_pod("p")], 1, 1, 1, by_job=BY_POD, budgets=[budget])
    assert evicted(fixture, there) == {"a"}


def test_victims_are_told_that_their_gang_leaves_whole() -> None:
    there = [*gang("low", 2, 0, 1), running(make_pod("a", cpu="1"), 2, priority=9)]
    fixture = play(there, [make_pod("p")], 1, 1, 1, by_job=BY_POD)
    said = {(name, message) for name, reason, message in fixture.api.conditions if reason == "PreemptionByScheduler"}
    assert {name for name, _ in said} == {"low-0", "low-1"}
    assert all(message.endswith(", together with all of its gang default/low") for _, message in said)


@pytest.mark.parametrize(
    ("minimum", "said"),
    [
        (3, "When a member is preempted, all 3 that are on nodes leave together (gangPolicy Whole)."),
        (2, "1 member can leave alone; when more are preempted, all 3 that are on nodes leave (gangPolicy Whole)."),
        (1, ""),
    ],
)
def test_the_explanation_says_who_would_leave(minimum: int, said: str) -> None:
    made, found = list[Profile](), list[str]()

    def remembered(view: ClusterView) -> Profile:
        made.append(profile(view, by_job=False))
        return made[-1]

    async def story(fixture: RunningScheduler) -> None:
        for pod in gang("low", minimum, 0, 0, 1):
            fixture.api.store(pod)
        await fixture.until_idle()
        services = made[0].first(GangServices)
        assert services is not None
        explain = services.services()["/gang/:namespace/:name/explanation"]
        found.append(explain({"namespace": "default", "name": "low"}).preemption)

    simulate(story, lambda: nodes(2, 1), remembered)
    assert found == [said]


def test_members_of_a_gang_whose_minimum_is_one_are_as_other_pods() -> None:
    there = [running(member("low", number, 1, cpu=cpu), 0) for number, cpu in enumerate(("2", "1", "1"))]
    left, _ = result(there, [make_pod("p", cpu="3")], 4, by_job=BY_POD)
    assert (len(left), "low-0" in left) == (2, True)


@WHO
def test_the_member_that_has_to_leave_is_the_spare_one(by_job: bool) -> None:
    """One of three must not leave, and the pod fits only on the node of one of the others."""
    low = [running(member("low", number, 2), number, priority=20 * (number == 2)) for number in range(3)]
    there = [*low, running(make_pod("a", cpu="1"), 0)]
    assert result(there, [make_pod("p", cpu="2")], 2, 1, 1, by_job=by_job) == ({"low-0", "a"}, {"p"})


def test_a_job_takes_no_more_members_than_can_be_spared() -> None:
    """Of the first two nodes, only one can be had; the third has a pod that costs no more."""
    there = [*gang("low", 2, 0, 1), running(member("low", 2, 2), 3, priority=20), running(make_pod("a", cpu="1"), 2)]
    left, bound = result(there, [member("job", n, 2) for n in range(2)], 1, 1, 1, 1, by_job=BY_JOB)
    assert ("a" in left, len(left), bound) == (True, 2, {"job-0", "job-1"})


def test_members_elsewhere_stay_with_their_gang() -> None:
    """The pod must not be in the zone of low-1, which stays when low-0 does: what runs beside low-0, and is less
    important, would leave in vain."""
    low = [running(member("low", number, 2), number, 5, {"role": role}) for number, role in enumerate(("l", "w"))]
    there = [*low, running(make_pod("a", cpu="1"), 0)]
    rule = {"labelSelector": {"matchLabels": {"role": "w"}}, "topologyKey": "zone"}
    document = to_document(important(make_pod("p")))
    document["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}

    def in_one_zone() -> SchedulerApi:
        api = SchedulerApi()
        for number, cpu in enumerate(("2", "1")):
            api.store(make_node(f"n{number}", cpu=cpu, labels={"zone": "z"}))
        return api

    def with_affinity(view: ClusterView) -> Profile:
        base = profile(view, by_job=BY_POD)
        plugins = {**base.plugins, "InterPodAffinity": InterPodAffinity(None, view)}
        return Profile(base.scheduler_name, plugins, listed(base.order, InterPodAffinity))

    async def story(fixture: RunningScheduler) -> None:
        for each in there:
            fixture.api.store(each)
        await fixture.until_idle()
        fixture.api.store(convert(document, Pod))
        await fixture.until_idle()

    fixture = simulate(story, in_one_zone, with_affinity)
    assert evicted(fixture, there) == {"low-0", "low-1"}


def test_nobody_leaves_any_node_when_the_binding_is_refused_once() -> None:
    """If it were tried for each node of the victims, half of the gang could leave in vain."""
    there = gang("low", 2, 0, 1)

    async def story(fixture: RunningScheduler) -> None:
        for each in there:
            fixture.api.store(each)
        await fixture.until_idle()
        fixture.api.faults.rules.append(bindings(FAULTS["a webhook refuses"], "p", times=1))
        fixture.api.store(important(make_pod("p")))
        await fixture.until_idle()

    fixture = simulate(story, lambda: nodes(1, 1), partial(profile, by_job=BY_POD))
    assert evicted(fixture, there) == set()


gangs = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from((0, 5, 20)), st.lists(st.integers(0, 2), min_size=1, max_size=3)),
    max_size=3,
)
"""The minimum, the priority, and the nodes of the members."""


@settings(max_examples=15)
@given(gangs, st.integers(1, 3), st.booleans())
def test_no_gang_is_left_below_its_minimum(drawn: list[tuple[int, int, list[int]]], cpu: int, by_job: bool) -> None:
    there = [
        pod
        for number, (least, priority, on) in enumerate(drawn)
        for pod in gang(f"v{number}", least, *on, priority=priority)
    ]
    slots = [max(1, sum(node == each for _, _, on in drawn for each in on)) for node in range(3)]
    fixture = play(there, [make_pod("p", cpu=str(cpu))], *slots, by_job=by_job)
    left = Counter(name.partition("-")[0] for name in evicted(fixture, there))
    for number, (least, priority, on) in enumerate(drawn):
        gone = left[f"v{number}"]
        assert gone in (0, len(on)) or len(on) - gone >= least
        assert not gone or priority < 10
    assert bool(left) <= ("p" in {name for name, _ in fixture.api.bindings})
