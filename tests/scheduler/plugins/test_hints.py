"""What plugins say of events: a pod that they keep waiting is woken by all that lets it pass, and by little else."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from operator import itemgetter
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.codec import convert
from koordinator.api.kinds import NODE_METRICS
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Container, ContainerPort, Pod
from koordinator.scheduler.configuration.koordinator_arguments import LoadAwareSchedulingArgs
from koordinator.scheduler.configuration.upstream_arguments import NodeAffinityArgs
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.framework import EventHandler, FilterPlugin, PreFilterPlugin
from koordinator.scheduler.engine.pod_info import PodFacts
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue
from koordinator.scheduler.watch.event_handlers import EventHandlers
from tests.examples import examples
from tests.scheduler.plugins.clusters import NODE_NAMES, NOW, POD_NAMES, ClusterFixture, metrics, nodes, pods, resizes

LOAD = LoadAwareSchedulingArgs(usage_thresholds={"cpu": 60}, filter_expired_node_metrics=True).completed("")
PLUGINS = (
    *("NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"),
    "LoadAwareScheduling",
)


class Story:
    """A cluster that hears of everything the way it does from the API, and the events that are made of it."""

    def __init__(self, **arguments: Any) -> None:
        self.fixture = ClusterFixture({"LoadAwareScheduling": LOAD, **arguments})
        self.events: list[ClusterEvent] = []
        self.pods: dict[str, Pod] = {}
        self.reports: dict[str, NodeMetric] = {}
        facts = PodFacts(self.fixture.info, lambda name: False)
        queue = cast("SchedulingQueue", self)
        self.event_handlers = EventHandlers(
            self.fixture.state, queue, facts, lambda name: False, lambda: None, lambda: NOW, self
        )

    # The queue, as the feed sees it.

    def on_event(self, event: ClusterEvent) -> None:
        self.events.append(event)

    def remove(self, uid: str) -> None:
        return None

    # The writer of statuses, which writes nothing here.

    def is_behind(self, pod: Pod) -> bool:
        return False

    def drop(self, uid: str) -> None:
        pass

    # What happens.

    def place(self, pod: Pod, node_name: str) -> None:
        pod = replace(pod, spec=replace(pod.spec, node_name=node_name))
        self.pods[pod.metadata.name] = pod
        self.event_handlers.set_pod(pod)

    def take(self, pod_name: str) -> None:
        if pod_name in self.pods:
            self.event_handlers.remove_pod(self.pods.pop(pod_name))

    def report(self, metric: NodeMetric | None, node_name: str) -> None:
        old = self.reports.pop(node_name, None)
        if metric is not None:
            self.reports[node_name] = metric
        if old is not None or metric is not None:
            self.event_handlers.set_node_object(NODE_METRICS, old, metric)

    def remove_node(self, name: str) -> None:
        for pod in [pod for pod in self.pods.values() if pod.spec.node_name == name]:
            self.take(pod.metadata.name)
        self.event_handlers.remove_node(name)

    # What plugins say.

    def passing(self, plugin_name: str, pod: Pod) -> dict[str, bool]:
        plugin, info = self.fixture.plugins[plugin_name], self.fixture.info(pod)
        assert isinstance(plugin, FilterPlugin)
        if isinstance(plugin, EventHandler):
            plugin.on_time(NOW)
        rows = dict(sorted(self.fixture.view.columns.row_of.items(), key=itemgetter(1)))
        prepared = plugin.pre_filter(info) if isinstance(plugin, PreFilterPlugin) else None
        if prepared is not None and (prepared.skip or prepared.rejection is not None):
            return dict.fromkeys(rows, prepared.skip)
        codes = plugin.filter(info, prepared.state if prepared else None, np.array(list(rows.values()), dtype=np.intp))
        return {name: code == 0 for name, code in zip(rows, codes.tolist(), strict=True)}

    def wakes(self, plugin_name: str, pod: Pod, events: Iterable[ClusterEvent] | None = None) -> bool:
        """Whether the plugin says of one of the events that it may help."""
        plugin, info = self.fixture.plugins[plugin_name], self.fixture.info(pod)
        heard = [
            event for event in (self.events if events is None else events) if event.kind in plugin.events_to_register()
        ]
        return any(plugin.queueing_hint(info, event) for event in heard)


def act(data: st.DataObject, story: Story) -> None:
    """One thing that happens, of those that the API tells of."""
    what = data.draw(st.sampled_from(["node", "node", "place", "resize", "take", "report", "forget", "remove"]))
    name = data.draw(st.sampled_from(NODE_NAMES))
    if what == "node" or name not in story.fixture.view.columns.row_of:
        node = data.draw(nodes(name))
        if data.draw(st.integers(0, 2)) == 2:
            node = replace(node, metadata=replace(node.metadata, labels={"zone": "a"}))
        story.event_handlers.set_node(node)
    elif what == "place" and len(story.pods) < len(POD_NAMES):
        # A pod never moves from one node to another.
        pod = data.draw(pods(data.draw(st.sampled_from([each for each in POD_NAMES if each not in story.pods]))))
        story.place(choosy(pod) if data.draw(st.booleans()) else pod, name)
    elif what == "resize" and story.pods:
        pod = data.draw(st.sampled_from(list(story.pods.values())))
        story.place(data.draw(resizes(pod)), pod.spec.node_name)
    elif what == "take":
        story.take(data.draw(st.sampled_from(POD_NAMES)))
    elif what == "report":
        story.report(data.draw(metrics(name, POD_NAMES)), name)
    elif what == "forget":
        story.report(None, name)
    elif what == "remove":
        story.remove_node(name)


def choosy(pod: Pod) -> Pod:
    """It wants a port that others have and a zone that few nodes are in."""
    wanted = [Container(name="choosy", ports=[ContainerPort(container_port=80, host_port=80, protocol="TCP")])]
    spec = replace(pod.spec, containers=[*pod.spec.containers, *wanted], node_selector={"zone": "a"}, affinity=None)
    return replace(pod, spec=spec)


@settings(max_examples=examples(60))
@given(st.data())
def test_what_lets_a_pod_pass_wakes_it(data: st.DataObject) -> None:
    story = Story()
    incoming = data.draw(pods("incoming"))
    if data.draw(st.booleans()):
        incoming = choosy(incoming)
    for name in NODE_NAMES[:2]:
        story.event_handlers.set_node(data.draw(nodes(name)))
    for _ in range(data.draw(st.integers(1, 10))):
        before = {name: story.passing(name, incoming) for name in PLUGINS}
        story.events.clear()
        act(data, story)
        for name in PLUGINS:
            after = story.passing(name, incoming)
            helped = [node for node, passes in after.items() if passes and not before[name].get(node, False)]
            if helped and not all(before[name].values()):
                assert story.wakes(name, incoming), f"{name} let the pod pass on {helped} and said of no event so"


# One plugin at a time.


def node(name: str = "n0", cpu: str = "1", **changes: Any) -> Node:
    spec = {"unschedulable": changes.get("cordoned", False), "taints": changes.get("taints", [])}
    allocatable = {"cpu": cpu, "memory": "1Gi", "pods": "10"}
    metadata = {"name": name, "uid": name, "labels": changes.get("labels", {})}
    return convert({"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable}}, Node)


def pod(name: str = "incoming", cpu: str = "1", ports: Iterable[tuple[str, int]] = (), **spec: Any) -> Pod:
    container = {
        "name": "main",
        "resources": {"requests": {"cpu": cpu}},
        "ports": [{"containerPort": 80, "hostIP": address, "hostPort": port} for address, port in ports],
    }
    metadata = {"name": name, "namespace": "default", "uid": name}
    return convert({"metadata": metadata, "spec": {"containers": [container], **spec}}, Pod)


def metric(cpu: str, minutes_old: int = 0, name: str = "n0") -> NodeMetric:
    written = (NOW - timedelta(minutes=minutes_old)).isoformat()
    usage = {"nodeUsage": {"resources": {"cpu": cpu}}}
    return convert({"metadata": {"name": name}, "status": {"updateTime": written, "nodeMetric": usage}}, NodeMetric)


def story_of(*known: Node, **arguments: Any) -> Story:
    story = Story(**arguments)
    for each in known:
        story.event_handlers.set_node(each)
    story.events.clear()
    return story


TAINT = {"key": "x", "effect": "NoSchedule"}
SOFT = {"key": "x", "effect": "PreferNoSchedule"}
TOLERATES = {"tolerations": [{"key": "x", "operator": "Exists"}]}
ZONE_A = {"nodeSelector": {"zone": "a"}}
NODE_CHANGES: dict[str, tuple[str, Node | None, Node, dict[str, Any], bool]] = {
    "the named node appears": ("NodeName", None, node(), {"nodeName": "n0"}, True),
    "another node appears": ("NodeName", None, node("n1"), {"nodeName": "n0"}, False),
    "a node is uncordoned": ("NodeUnschedulable", node(cordoned=True), node(), {}, True),
    "a node appears cordoned": ("NodeUnschedulable", None, node(cordoned=True), {}, False),
    "a cordoned node gets a taint": (
        *("NodeUnschedulable", node(cordoned=True), node(cordoned=True, taints=[TAINT]), {}, False),
    ),
    "a taint goes": ("TaintToleration", node(taints=[TAINT]), node(), {}, True),
    "a taint becomes soft": ("TaintToleration", node(taints=[TAINT]), node(taints=[SOFT]), {}, True),
    "one taint of two goes": (
        *(
            "TaintToleration",
            node(taints=[TAINT, {"key": "y", "effect": "NoExecute"}]),
            node(taints=[TAINT]),
            {},
            False,
        ),
    ),
    "a tolerated taint is left": (
        *("TaintToleration", node(taints=[{"key": "y", "effect": "NoExecute"}]), node(taints=[TAINT]), TOLERATES, True),
    ),
    "a label matches now": ("NodeAffinity", node(), node(labels={"zone": "a"}), ZONE_A, True),
    "a label matches still not": ("NodeAffinity", node(), node(labels={"zone": "b"}), ZONE_A, False),
    "a node without the label appears": ("NodeAffinity", None, node(), ZONE_A, False),
    "a node appears for a port": ("NodePorts", None, node(), {}, True),
    "a node gets larger but not enough": ("NodeResourcesFit", node(cpu="100m"), node(cpu="900m"), {}, False),
    "a node gets large enough": ("NodeResourcesFit", node(cpu="100m"), node(cpu="1"), {}, True),
    "a small node appears": ("NodeResourcesFit", None, node(cpu="500m"), {}, False),
    "a label is of no help with resources": (
        *("NodeResourcesFit", node(cpu="100m"), node(cpu="100m", labels={"zone": "a"}), {}, False),
    ),
}


@pytest.mark.parametrize("case", NODE_CHANGES)
def test_changes_of_nodes(case: str) -> None:
    plugin, before, after, spec, helps = NODE_CHANGES[case]
    story = story_of(*([before] if before else []))
    story.event_handlers.set_node(after)
    assert story.wakes(plugin, pod(**spec)) is helps


def test_a_node_that_the_profile_keeps_everybody_from_is_of_no_help() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    story = story_of(NodeAffinity=convert({"addedAffinity": required}, NodeAffinityArgs))
    story.event_handlers.set_node(node("n0", labels={"zone": "b"}))
    assert not story.wakes("NodeAffinity", pod())
    story.event_handlers.set_node(node("n1", labels={"zone": "a"}))
    assert story.wakes("NodeAffinity", pod())


PORTS = {
    "the same port": ([("", 80)], [("", 80)], True),
    "any address and one": ([("10.0.0.1", 80)], [("", 80)], True),
    "another port": ([("", 81)], [("", 80)], False),
    "another address": ([("10.0.0.1", 80)], [("10.0.0.2", 80)], False),
    "none": ([], [("", 80)], False),
}


@pytest.mark.parametrize("case", PORTS)
def test_a_pod_with_ports_leaves(case: str) -> None:
    theirs, ours, helps = PORTS[case]
    story = story_of(node())
    story.place(pod("there", ports=theirs), "n0")
    story.events.clear()
    story.take("there")
    assert story.wakes("NodePorts", pod(ports=ours)) is helps


@pytest.mark.parametrize(("cpu", "helps"), [("500m", True), ("600m", False)])
def test_a_pod_leaves_and_there_is_capacity_or_not(cpu: str, helps: bool) -> None:
    story = story_of(node(cpu="1"))
    story.place(pod("leaving", cpu="400m"), "n0")
    story.place(pod("staying", cpu="500m"), "n0")
    story.events.clear()
    story.take("leaving")
    assert story.wakes("NodeResourcesFit", pod(cpu=cpu)) is helps


@pytest.mark.parametrize(("cpu", "helps"), [("500m", True), ("600m", False)])
def test_a_pod_is_resized_and_there_is_capacity_or_not(cpu: str, helps: bool) -> None:
    story = story_of(node(cpu="1"))
    story.place(pod("there", cpu="1"), "n0")
    story.events.clear()
    story.place(pod("there", cpu="500m"), "n0")
    assert {event.kind for event in story.events} == {EventKind.POD_SCALE_DOWN}
    assert story.wakes("NodeResourcesFit", pod(cpu=cpu)) is helps


REPORTS = {
    "less load": (metric("900m"), metric("100m"), True),
    "still too much": (metric("900m"), metric("800m"), False),
    "a fresh report": (metric("100m", minutes_old=60), metric("100m"), True),
    "no report any more": (metric("900m"), None, True),
}


@pytest.mark.parametrize("case", REPORTS)
def test_reports_of_load(case: str) -> None:
    before, after, helps = REPORTS[case]
    story = story_of(node(cpu="1"))
    story.report(before, "n0")
    story.events.clear()
    story.report(after, "n0")
    assert story.wakes("LoadAwareScheduling", pod(cpu="100m")) is helps
