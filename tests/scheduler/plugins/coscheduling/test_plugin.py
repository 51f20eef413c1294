"""Gangs through the whole scheduler: queue, waiting, binding; on an API server in memory."""

from __future__ import annotations

import msgspec

from koordinator.api.duration import GoDuration
from koordinator.api.kinds import POD_GROUPS
from koordinator.scheduler.configuration.koordinator_arguments import CoschedulingArgs
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.gang import MemberState
from koordinator.scheduler.plugins.coscheduling.plugin import Coscheduling
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind
from koordinator.scheduler.queue.queued_pod import Pool
from tests.scheduler.fakes import make_node, make_pod, make_profile
from tests.scheduler.ground.clusters import listed
from tests.scheduler.plugins.coscheduling.gang_fakes import labelled, member, pod_group
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

PATIENCE = 600.0
MANY = 1000


def gang_profile(view: ClusterView) -> Profile:
    base = make_profile(view)
    args = CoschedulingArgs(default_timeout=GoDuration(seconds=PATIENCE))
    plugins = {**base.plugins, "Coscheduling": Coscheduling(args, view), "DefaultPreBind": DefaultPreBind(None, view)}
    return Profile(base.scheduler_name, plugins, listed(base.order, Coscheduling))


def nodes(*slots: int) -> SchedulerApi:
    api = SchedulerApi()
    for number, count in enumerate(slots):
        api.store(make_node(f"n{number}", cpu=str(count), memory="2000Gi", pods="2000"))
    return api


def run(story: object, *slots: int) -> RunningScheduler:
    return simulate(story, lambda: nodes(*slots), gang_profile)  # type: ignore[arg-type]


def notes(fixture: RunningScheduler, name: str) -> list[str]:
    return [note for pod, reason, note in fixture.events.notes if pod == name and reason == "FailedScheduling"]


def test_members_that_all_fit_are_bound() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(3):
            fixture.api.store(member("g", number, 3))

    assert set(run(story, 2, 1).api.placed()) == {"g-0", "g-1", "g-2"}


def test_an_incomplete_gang_is_not_tried() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(2):
            fixture.api.store(member("g", number, 3))
        await fixture.until_idle()
        entry = fixture.scheduler.queue.get("uid-g-1")
        assert entry is not None
        assert entry.pool is Pool.GATED
        assert "default/g has 2 of 3 pods" in entry.reason

    assert run(story, 3).api.placed() == {}


def test_a_strict_gang_that_does_not_fit_leaves_its_capacity_to_others() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(3):
            fixture.api.store(member("g", number, 3))
        await fixture.until_idle()
        fixture.api.store(make_pod("single-0"))
        fixture.api.store(make_pod("single-1"))

    assert set(run(story, 2).api.placed()) == {"single-0", "single-1"}


def test_each_member_of_a_gang_that_failed_is_told_why() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(3):
            fixture.api.store(member("g", number, 3))

    fixture = run(story, 1)
    because = (
        'GangGroup "default/g" gets rejected due to member Pod "default/g-1" is unschedulable with reason '
        '"0/1 nodes are available: 1 Insufficient cpu.", alreadyWaitForBound: 1'
    )
    assert notes(fixture, "g-1") == ["0/1 nodes are available: 1 Insufficient cpu."]
    assert notes(fixture, "g-2") == [f"0/1 nodes are available: {because}."]
    assert notes(fixture, "g-0") == [f"0/1 nodes are available: 1 {because}."]


def test_a_gang_is_tried_again_when_there_is_capacity() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(3):
            fixture.api.store(member("g", number, 3))
        await fixture.until_idle()
        fixture.api.store(make_node("later", cpu="2"))
        await fixture.until_idle(2)

    assert len(run(story, 1).api.placed()) == 3


def test_two_gangs_that_each_need_the_whole_node_do_not_block_each_other() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(2):
            for gang in "ab":
                fixture.api.store(member(gang, number, 2))

    placed = run(story, 2).api.placed()
    assert set(placed) in ({"a-0", "a-1"}, {"b-0", "b-1"})


def test_gangs_of_a_group_are_placed_together_or_not_at_all() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(2):
            fixture.api.store(member("a", number, 2, together=("a", "b")))
        await fixture.until_idle()
        fixture.api.store(member("b", 0, 1, together=("a", "b")))

    assert run(story, 2).api.placed() == {}


def test_a_group_that_fits_is_bound() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(2):
            fixture.api.store(member("a", number, 2, together=("a", "b")))
        fixture.api.store(member("b", 0, 1, together=("a", "b")))

    assert set(run(story, 3).api.placed()) == {"a-0", "a-1", "b-0"}


def test_members_that_a_gang_could_do_without_leave_the_others_of_its_group_their_nodes() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(3):
            fixture.api.store(member("a", number, 1, together=("a", "b")))
        fixture.api.store(member("b", 0, 1, together=("a", "b")))

    assert set(run(story, 2).api.placed()) == {"a-0", "b-0"}


def test_members_of_a_non_strict_gang_keep_their_nodes_while_others_find_none() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(3):
            fixture.api.store(member("g", number, 3, mode="NonStrict"))
        await fixture.until_idle()
        assert fixture.scheduler.state.assumed_count == 2
        fixture.api.store(make_node("later", cpu="1"))
        await fixture.until_idle(2)

    assert len(run(story, 2).api.placed()) == 3


def test_a_gated_member_is_waited_for() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(member("g", 0, 2))
        fixture.api.store(member("g", 1, 2, gated=True))
        await fixture.until_idle()
        assert fixture.api.placed() == {}
        fixture.api.store(member("g", 1, 2))
        await fixture.until_idle()

    assert set(run(story, 2).api.placed()) == {"g-0", "g-1"}


def test_a_pod_group_that_comes_late_lets_its_pods_in() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(2):
            fixture.api.store(labelled("g", number))
        await fixture.until_idle()
        assert fixture.api.placed() == {}
        fixture.api.store(pod_group("g", 2), POD_GROUPS)
        await fixture.until_idle()

    assert set(run(story, 2).api.placed()) == {"g-0", "g-1"}


def test_a_lower_minimum_lets_the_pods_in() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pod_group("g", 3), POD_GROUPS)
        for number in range(2):
            fixture.api.store(labelled("g", number))
        await fixture.until_idle()
        fixture.api.store(pod_group("g", 2), POD_GROUPS)
        await fixture.until_idle()

    assert set(run(story, 2).api.placed()) == {"g-0", "g-1"}


def test_a_gang_of_which_a_part_is_bound_goes_on_after_a_restart() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(member("g", 1, 3))
        fixture.api.store(member("g", 2, 3))

    def half_bound() -> SchedulerApi:
        api = nodes(3)
        pod = member("g", 0, 3)
        api.store(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n0")))
        return api

    assert {"g-1", "g-2"} <= set(simulate(story, half_bound, gang_profile).api.placed())


def test_pods_that_are_bound_together_say_so() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(2):
            fixture.api.store(member("g", number, 2))

    pods = run(story, 2).api.objects("pods").values()
    assert {pod.metadata.annotations.get("scheduling.koordinator.sh/bind-gang-member-count") for pod in pods} == {"2"}


def test_a_thousand_members_are_given_up_together() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(MANY):
            fixture.api.store(member("g", number, MANY))
        await fixture.until_idle()

    fixture = run(story, MANY - 1)
    assert fixture.api.placed() == {}
    assert fixture.scheduler.queue.size(Pool.IN_FLIGHT) == 0


def test_a_thousand_members_are_bound_together() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(MANY):
            fixture.api.store(member("g", number, MANY))
        await fixture.until_idle(1)
        await fixture.until_idle(1)
        plugin = fixture.scheduler.engines["koord-scheduler"].profile.plugins["Coscheduling"]
        assert isinstance(plugin, Coscheduling)
        assert len(plugin.gangs.cache.gangs["default/g"].by_state[MemberState.BOUND]) == MANY

    assert len(run(story, MANY).api.placed()) == MANY


def events_of_the_group(fixture: RunningScheduler) -> list[tuple[str, str]]:
    return [(reason, note) for name, reason, note in fixture.events.notes if name == "g"]


def test_a_gang_that_is_bound_has_one_event() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pod_group("g", 3), POD_GROUPS)
        for number in range(3):
            fixture.api.store(labelled("g", number))

    fixture = run(story, 3)
    assert events_of_the_group(fixture) == [("Scheduled", "3 members of default/g have a node and are bound")]
    assert fixture.registry.get_sample_value("scheduler_waiting_gang_group_number") == 0
    labels = {"reason": "gang is already succeed", "job_size": "1-100"}
    assert fixture.registry.get_sample_value("scheduler_gang_schedule_cycle_duration_seconds_count", labels) == 1


def test_a_gang_that_does_not_fit_has_one_event_for_an_attempt() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(pod_group("g", 3), POD_GROUPS)
        for number in range(3):
            fixture.api.store(labelled("g", number))

    (reason, note), *others = events_of_the_group(run(story, 2))
    assert reason == "FailedScheduling"
    assert note.startswith("no node for default/g-2, 3 members wait: 0/1 nodes are available")
    assert others == []
