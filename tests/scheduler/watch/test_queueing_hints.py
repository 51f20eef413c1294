"""Plugins are asked whether an event helps a pod about nodes on which nominated pods count as being there."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.base.clock import ManualClock
from koordinator.scheduler.engine.allocations import Allocation
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugin_errors import PluginErrors
from koordinator.scheduler.queue.queued_pod import QueuedPod
from koordinator.scheduler.watch.queueing_hints import QueueingHints
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import profile_with
from tests.scheduler.ground.tokens import Tokens


class Seeing(Plugin):
    """Records what it sees of the first node when it is asked."""

    name = "Seeing"

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.seen: list[Any] = []

    def events_to_register(self) -> frozenset[str]:
        return frozenset({EventKind.POD_DELETE})

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        if pod.key == "default/fails":
            raise RuntimeError("no hint")
        held = {uid: self.view.allocations.of("Tokens", uid) for uid in self.view.pods_on[0]}
        self.seen.append((held, int(self.view.columns.requested[0, 0])))
        return False


class Granting(Tokens):
    """Knows what a nominated pod is going to get."""

    def nominated_allocation(self, pod: PodInfo, node_name: str) -> Allocation | None:
        if pod.key == "default/odd":
            raise RuntimeError("who knows")
        return (("red", 1),)


class Waiting:
    """A cluster of one node, and the hints of a pod that Seeing has rejected."""

    def __init__(self) -> None:
        self.state = ClusterState(ClusterView(NodeColumns()))
        self.profile = profile_with(self.state.view, Seeing, Granting)
        self.state.add_event_handlers(self.profile.event_handlers)
        self.state.set_node(make_node("a"))
        errors = PluginErrors(ManualClock().monotonic, lambda plugin, point: None)
        self.hints = QueueingHints(self.state, lambda name: self.profile, errors)
        seeing = self.profile.plugins["Seeing"]
        assert isinstance(seeing, Seeing)
        self.seeing = seeing

    def hint(self, name: str, priority: int) -> bool:
        gone = make_pod("gone", node="a")
        entry = QueuedPod(describe(make_pod(name, priority=priority)), 0.0, 0.0, plugins=frozenset({"Seeing"}))
        return self.hints.queueing_hint(entry, ClusterEvent(EventKind.POD_DELETE, describe(gone)))


def test_nominated_pods_are_there_for_those_that_come_after_them() -> None:
    waiting = Waiting()
    waiting.state.view.nominations.set(describe(make_pod("nominated", cpu="3", priority=5)), "a")
    assert not waiting.hint("first", 9)
    assert not waiting.hint("last", 1)
    assert waiting.seeing.seen == [({}, 0), ({"uid-nominated": (("red", 1),)}, 3000)]


@pytest.mark.parametrize(("nominated", "asking"), [("nominated", "fails"), ("odd", "p")])
def test_nothing_is_left_of_them_when_a_plugin_fails_which_counts_as_a_hint(nominated: str, asking: str) -> None:
    waiting = Waiting()
    waiting.state.view.nominations.set(describe(make_pod(nominated, cpu="3", priority=5)), "a")
    assert waiting.hint(asking, 1)
    assert waiting.state.view.pods_on == {0: {}}
    assert not waiting.state.view.columns.requested.any()
    assert waiting.state.pod_count == 0
