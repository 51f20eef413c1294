"""The whole scheduler with the default plugins on random stories: in the end no pod waits that a node could take.

What could be is known from the plain reference. Pods are not tried again just because time has passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.pod import Pod
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import default_configuration
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.table import BUILT_IN
from tests.examples import examples
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.plugins import reference
from tests.scheduler.plugins.clusters import NODE_NAMES
from tests.scheduler.plugins.reference import FilterResult, Machine
from tests.scheduler.plugins.stories import Dice
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi

FILTERS: tuple[Callable[[Machine, Pod], FilterResult], ...] = (
    *(reference.unschedulable, reference.taints, reference.affinity, reference.ports, reference.fit),
)
CONFIGURATION = default_configuration()
PAUSES = 12.0
"""Longer than any back-off and much shorter than the time after which unschedulable pods are tried again anyway."""


def default_profile(view: ClusterView) -> Profile:
    (profile,) = build_profiles(CONFIGURATION, BUILT_IN, view)
    return profile


def pending(pod: Pod, priority: int | None) -> Pod:
    """As it is created. Without a priority nobody is evicted for it: what fits is a matter of filters alone."""
    name, policy = CONFIGURATION.profiles[0].scheduler_name, "Never" if priority is None else None
    spec = replace(pod.spec, scheduler_name=name, preemption_policy=policy, priority=priority or pod.spec.priority)
    return replace(pod, spec=spec, status=replace(pod.status, conditions=[]))


def check(api: SchedulerApi) -> None:
    machines = {name: Machine(node) for name, node in api.objects("nodes").items()}
    for pod in api.objects("pods").values():
        if pod.spec.node_name:
            machines[pod.spec.node_name].pods.append(pod)
    for pod in api.objects("pods").values():
        if not pod.spec.node_name:
            fitting = [n for n, machine in machines.items() if not any(judge(machine, pod) for judge in FILTERS)]
            assert fitting == [], f"{pod.metadata.name} waits and fits on {fitting}"


def note_what_came_of_it(fixture: RunningScheduler) -> None:
    """For --hypothesis-show-statistics: a story in which nobody waits first and gets a node later shows nothing."""
    failed = {name for name, reason, _ in fixture.events.notes if reason == "FailedScheduling"}
    freed = {name for name, reason, _ in fixture.events.notes if reason == "Scheduled" and name in failed}
    event("freed" if freed else "unschedulable" if failed else "nobody waited")


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32))
def test_no_pod_waits_that_fits(seed: int) -> None:
    async def run() -> None:
        dice = Dice(seed)
        fixture = RunningScheduler(SchedulerApi(), default_profile, lambda pod, view: make_pod_info(pod))
        for name in NODE_NAMES[:2]:
            fixture.api.store(dice.node(name))
        async with fixture.running():
            for _ in range(dice.random.randint(6, 25)):
                dice.act(fixture.api, lambda pod: pending(pod, None))
                await fixture.until_idle(dice.pick([0.0, 0.0, 1.0]))
            await fixture.until_idle(PAUSES)
            await fixture.until_idle(PAUSES)
            check(fixture.api)
        note_what_came_of_it(fixture)

    asyncio.run(run())


def act_by_importance(dice: Dice, api: SchedulerApi) -> None:
    """Pods that differ by size and priority alone, on nodes that are full soon."""
    what = dice.pick(["pod", "pod", "pod", "node", "delete"])
    if what == "pod":
        pod = make_pod(dice.name(), cpu=str(dice.random.randint(1, 3)))
        api.store(pending(pod, dice.random.randint(1, 3)))
    elif what == "node":
        api.store(make_node(dice.pick(NODE_NAMES), cpu=str(dice.random.randint(2, 4))))
    elif api.objects("pods"):
        api.drop("pods", dice.pick(sorted(api.objects("pods"))))


def let_go(api: SchedulerApi) -> None:
    """All pods that are being deleted are gone at last."""
    for key, pod in list(api.objects("pods").items()):
        if pod.metadata.deletion_timestamp is not None:
            api.drop("pods", key)


@settings(max_examples=examples(25))
@given(st.integers(0, 2**32))
def test_no_pod_waits_that_fits_when_others_had_to_leave(seed: int) -> None:
    async def run() -> None:
        dice = Dice(seed)
        fixture = RunningScheduler(SchedulerApi(), default_profile, lambda pod, view: make_pod_info(pod))
        fixture.api.leaving_takes_time = dice.maybe(0.5)
        for name in NODE_NAMES[:2]:
            fixture.api.store(make_node(name, cpu="3"))
        async with fixture.running():
            for _ in range(dice.random.randint(6, 20)):
                act_by_importance(dice, fixture.api)
                await fixture.until_idle(dice.pick([0.0, 0.0, 1.0]))
                if dice.maybe(0.5):
                    let_go(fixture.api)
            for _ in range(8):
                await fixture.until_idle(PAUSES)
                let_go(fixture.api)
            await fixture.until_idle(PAUSES)
            check(fixture.api)
        note_what_came_of_it(fixture)

    asyncio.run(run())


def test_those_who_wait_for_other_nodes_are_not_tried_in_vain() -> None:
    names = ("a", "b", "c")

    async def run() -> list[int]:
        api = SchedulerApi()
        for name in names:
            api.store(make_node(name, cpu="1"))
            api.store(make_pod(f"low-{name}", priority=1, node=name))
        api.leaving_takes_time = True
        fixture = RunningScheduler(api, default_profile, lambda pod, view: make_pod_info(pod))
        async with fixture.running():
            for name in names:
                api.store(pending(make_pod(f"high-{name}"), 10))
            await fixture.until_idle(PAUSES)
            for _ in names:
                api.drop(
                    "pods", next(key for key, pod in api.objects("pods").items() if pod.metadata.deletion_timestamp)
                )
                await fixture.until_idle(PAUSES)
            assert sorted(api.placed()) == [f"high-{name}" for name in names]
        noted = [name for name, reason, _ in fixture.events.notes if reason == "FailedScheduling"]
        return [noted.count(f"high-{name}") for name in names]

    assert asyncio.run(run()) == [1, 1, 1]
