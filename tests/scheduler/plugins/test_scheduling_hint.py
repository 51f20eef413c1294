"""SchedulingHint: an annotation that names nodes, from the plugin alone to the engine's choice."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from koordinator.api.annotations import DEPRECATED_SCHEDULING_HINT, SCHEDULING_HINT
from koordinator.scheduler.configuration.koordinator_arguments import SchedulingHintArgs
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.plugins.scheduling_hint import Hint, SchedulingHint, hint_of
from tests.scheduler.fakes import FirstChoice, Fit, Unschedulable, describe, make_node, make_pod, make_state


def hinted(annotations: dict[str, str], name: str = "p", cpu: str = "1") -> PodInfo:
    pod = make_pod(name, cpu=cpu)
    pod.metadata.annotations.update(annotations)
    return describe(pod)


def hint(*, only: tuple[str, ...] = (), preferred: tuple[str, ...] = ()) -> dict[str, str]:
    document = {key: list(names) for key, names in (("nodeNames", only), ("preferredNodeNames", preferred)) if names}
    return {SCHEDULING_HINT: json.dumps(document)}


class ClusterFixture:
    """Nodes a (with a pod on it), b (cordoned) and c, which is empty, so that pods go there if nothing is said."""

    def __init__(self, most: int = 100) -> None:
        self.state = make_state([make_node("a"), make_node("b", unschedulable=True), make_node("c")])
        self.state.set_pod(describe(make_pod("there")), "a")
        view = self.state.view
        self.plugin = SchedulingHint(SchedulingHintArgs(max_hint_nodes=most), view)
        plugins = {each.name: each for each in (self.plugin, Unschedulable(None, view), Fit(None, view))}
        order = PluginOrder(pre_filter=("SchedulingHint",), filter=("Unschedulable", "Fit"), score=(("Fit", 1),))
        self.profile = Profile("koord-scheduler", plugins, order)
        self.engine = Engine(self.profile, self.state, FirstChoice())

    def decide(self, pod: PodInfo) -> str:
        """The node, or why there is none."""
        decision = self.engine.decide(pod, datetime(2026, 1, 1, tzinfo=UTC))
        return decision.node_name if isinstance(decision, Placement) else decision.message


def test_without_a_hint_the_best_node_is_taken() -> None:
    assert ClusterFixture().decide(hinted({})) == "c"


def test_only_the_named_nodes_are_looked_at() -> None:
    assert ClusterFixture().decide(hinted(hint(only=("a", "b", "nowhere")))) == "a"


def test_a_pod_waits_when_none_of_the_named_nodes_is_there() -> None:
    message = ClusterFixture().decide(hinted(hint(only=("nowhere",))))
    assert message == "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [SchedulingHint]."


def test_the_first_preferred_node_that_can_take_the_pod_wins_over_better_ones() -> None:
    assert ClusterFixture().decide(hinted(hint(preferred=("nowhere", "b", "a", "c")))) == "a"


def test_when_no_preferred_node_can_take_the_pod_the_best_one_does() -> None:
    assert ClusterFixture().decide(hinted(hint(preferred=("b",)))) == "c"


def test_a_preferred_node_that_is_not_among_the_named_ones_is_left_out() -> None:
    assert ClusterFixture().decide(hinted(hint(only=("c",), preferred=("a",)))) == "c"


def test_only_so_many_preferred_nodes_are_tried() -> None:
    assert ClusterFixture(most=1).decide(hinted(hint(preferred=("b", "a")))) == "c"


@pytest.mark.parametrize(
    ("annotations", "node"),
    [
        ({DEPRECATED_SCHEDULING_HINT: '{"nodeNames": ["a"]}'}, "a"),
        ({DEPRECATED_SCHEDULING_HINT: '{"nodeNames": ["a"]}', SCHEDULING_HINT: ""}, "a"),
        ({DEPRECATED_SCHEDULING_HINT: '{"nodeNames": ["a"]}', SCHEDULING_HINT: '{"nodeNames": ["c"]}'}, "c"),
        ({SCHEDULING_HINT: '{"nodeNames": null, "other": 1}'}, "c"),
    ],
)
def test_which_annotation_counts(annotations: dict[str, str], node: str) -> None:
    assert ClusterFixture().decide(hinted(annotations)) == node


def test_a_hint_that_cannot_be_read_is_why_the_pod_waits() -> None:
    message = ClusterFixture().decide(hinted({SCHEDULING_HINT: "nodes: a"}))
    assert "annotation internal.scheduling.koordinator.sh/scheduling-hint: " in message


def test_a_hint_that_cannot_be_read_has_a_class_all_the_same() -> None:
    fixture = ClusterFixture()
    assert fixture.profile.class_key(hinted({SCHEDULING_HINT: "{"})) != fixture.profile.class_key(hinted({}))


def test_preferences_make_no_class_of_their_own() -> None:
    fixture = ClusterFixture()
    keys = {fixture.profile.class_key(hinted(hint(preferred=preferred))) for preferred in (("a",), ("b",), ())}
    assert len(keys) == 1


def test_plugins_find_what_the_hint_has_for_them() -> None:
    found = hint_of(hinted({SCHEDULING_HINT: '{"extensions": {"DeviceShare": {}}}'}))
    assert isinstance(found, Hint)
    assert "DeviceShare" in found.extensions


@pytest.mark.parametrize(("name", "helps"), [("new", True), ("other", False)])
def test_a_node_that_is_waited_for_wakes_the_pod(name: str, helps: bool) -> None:
    event = ClusterEvent(EventKind.NODE_ADD, None, make_node(name))
    assert ClusterFixture().plugin.queueing_hint(hinted(hint(only=("new",))), event) is helps
