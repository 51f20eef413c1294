"""Job preemption of gangs that request a place in the network: room is made in one domain, or nobody is evicted."""

from __future__ import annotations

import msgspec

from koordinator.api.pod import Pod
from tests.scheduler.fakes import make_pod
from tests.scheduler.plugins.coscheduling.network_topology.topology_stories import (
    FOUR_BLOCKS,
    GATHERED,
    members,
    network,
    notes,
    play,
    profile,
    spec,
)
from tests.scheduler.running_scheduler import RunningScheduler


def running(name: str, node: str, priority: int = 0) -> Pod:
    return make_pod(name, node=node, priority=priority)


def important(pods: list[Pod]) -> list[Pod]:
    return [msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=10)) for pod in pods]


def ended(on_nodes: list[Pod], pods: list[Pod], slots: dict[str, int] | None = None) -> tuple[set[str], dict[str, str]]:
    """The pods that were evicted, and where ``pods`` are in the end."""

    async def story(fixture: RunningScheduler) -> None:
        for pod in on_nodes:
            fixture.api.store(pod)
        await fixture.until_idle()
        for pod in important(pods):
            fixture.api.store(pod)
        await fixture.until_idle()
        await fixture.until_idle(60)

    fixture = play(story, network(slots or {}), profile(enable_preemption=True))
    left = {pod.metadata.name for pod in fixture.api.objects("pods").values()}
    names = {pod.metadata.name for pod in pods}
    placed = {name: node for name, node in fixture.api.placed().items() if name in names}
    return {pod.metadata.name for pod in on_nodes} - left, placed


def everywhere(priority: int = 0) -> list[Pod]:
    return [running(f"on-{node}", node, priority) for node in FOUR_BLOCKS]


def test_capacity_is_freed_in_one_domain() -> None:
    evicted, placed = ended(everywhere(), members(2))
    assert set(placed) == {"g-0", "g-1"}
    assert len({FOUR_BLOCKS[node] for node in placed.values()}) == 1
    assert evicted == {f"on-{node}" for node in placed.values()}


def test_the_domain_where_the_least_important_pods_leave_is_chosen() -> None:
    pods = [running(f"on-{node}", node, 0 if FOUR_BLOCKS[node] == "s1/b3" else 5) for node in FOUR_BLOCKS]
    evicted, placed = ended(pods, members(2))
    assert set(placed.values()) == {"n6", "n7"}
    assert evicted == {"on-n6", "on-n7"}


def test_who_need_not_leave_stays() -> None:
    pods = [running("a", "n0"), *[each for each in everywhere() if each.spec.node_name not in ("n0", "n1")]]
    evicted, placed = ended(pods, members(2), {"n0": 2})
    assert (evicted, set(placed.values())) == (set(), {"n0", "n1"})


def test_nobody_leaves_where_no_domain_would_have_enough_capacity() -> None:
    assert ended(everywhere(), members(3)) == (set(), {})


def test_without_a_must_the_smallest_domain_that_can_be_freed_is_taken() -> None:
    evicted, placed = ended(everywhere(), members(4, spec(("BlockLayer", "PreferGather"))))
    assert {FOUR_BLOCKS[node].partition("/")[0] for node in placed.values()} == {"s0"}
    assert len(evicted) == 4


def test_pods_that_are_as_important_do_not_leave() -> None:
    assert ended(everywhere(10), members(2, GATHERED)) == (set(), {})


def test_members_are_notified_for_how_many_domains_would_have_capacity() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for pod in everywhere():
            fixture.api.store(pod)
        await fixture.until_idle()
        for pod in important(members(3)):
            fixture.api.store(pod)
        await fixture.until_idle()

    [note] = notes(play(story, network({}), profile(enable_preemption=True)), "g-0")
    before, _, after = note.partition(" preemption: ")
    text = "topology topologyNode BlockLayer/{}: {}"
    assert ";".join(text.format(f"b{number}", 0) for number in range(4)) in before
    assert ";".join(text.format(f"b{number}", 2) for number in range(4)) in after
