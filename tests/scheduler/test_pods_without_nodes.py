"""What plugins are notified of pods that are on no node, and of those that they have rejected in one attempt alone."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from koordinator.scheduler.engine.binding_points import CyclePreFilterPlugin, CycleState
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import EventHandler, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.ground.clusters import profile_with
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi


class Census(CyclePreFilterPlugin, EventHandler):
    """Knows all pods; rejects every one that says so."""

    name = "Census"

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.node_of: dict[str, str] = {}
        self.broken = False
        self.calls: list[str] = []

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def on_pod(self, pod: PodInfo, node_name: str) -> None:
        if self.broken:
            raise RuntimeError("disk full")
        self.node_of[pod.key] = node_name

    def on_pod_gone(self, pod: PodInfo) -> None:
        del self.node_of[pod.key]

    def pre_filter_cycle(self, state: CycleState, pod: PodInfo) -> Reason | None:
        return Reason("not now") if "rejected" in pod.pod.metadata.labels else None

    def waits_as(self, pod: PodInfo) -> Hashable:
        return pod.pod.metadata.labels["rejected"]

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.POD_DELETE})

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        self.calls.append(pod.key)
        return False


def one_node() -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("a", cpu="4"))
    return api


def census_of(fixture: RunningScheduler) -> Census:
    plugin = fixture.scheduler.engines["koord-scheduler"].profile.plugins["Census"]
    assert isinstance(plugin, Census)
    return plugin


def run(story: Any) -> RunningScheduler:
    return simulate(story, one_node, lambda view: profile_with(view, Census))


def test_pods_of_all_schedulers_are_reported_with_their_nodes_until_they_are_gone() -> None:
    async def story(fixture: RunningScheduler) -> None:
        census = census_of(fixture)
        fixture.api.store(make_pod("ours"))
        fixture.api.store(make_pod("large", cpu="64"))
        fixture.api.store(make_pod("foreign", scheduler="other"))
        fixture.api.store(make_pod("lost", node="unknown"))
        await fixture.until_idle(2)
        nodes = {"default/ours": "a", "default/large": "", "default/foreign": "", "default/lost": "unknown"}
        assert census.node_of == nodes
        for name in ("ours", "large", "foreign", "lost"):
            fixture.api.drop("pods", f"default/{name}")
        await fixture.until_idle(2)
        assert census.node_of == {}

    run(story)


def test_a_pod_that_was_missed_is_reported_again() -> None:
    async def story(fixture: RunningScheduler) -> None:
        census = census_of(fixture)
        census.broken = True
        fixture.api.store(make_pod("large", cpu="64"))
        await fixture.until_idle(1)
        census.broken = False
        await fixture.until_idle(30)
        assert census.node_of == {"default/large": ""}

    run(story)


def test_an_event_is_queried_about_once_for_all_that_wait_for_the_same() -> None:
    async def story(fixture: RunningScheduler) -> None:
        census = census_of(fixture)
        fixture.api.store(make_pod("leaver", node="a"))
        for number in range(5):
            fixture.api.store(make_pod(f"p{number}", labels={"rejected": "red"}))
            fixture.api.store(make_pod(f"q{number}", labels={"rejected": "blue"}))
        await fixture.until_idle(2)
        fixture.api.drop("pods", "default/leaver")
        await fixture.until_idle(2)
        assert len(census.calls) == 2

    run(story)
