"""Small clusters of pods that care about each other, and the events that change them."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from koordinator.api.core import Namespace
from koordinator.api.kinds import NAMESPACES
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Affinity, Pod, PodAffinity, PodAffinityTerm, PodSpec, WeightedPodAffinityTerm
from koordinator.scheduler.configuration.upstream_arguments import InterPodAffinityArgs
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.inter_pod_affinity.plugin import InterPodAffinity
from tests.scheduler.plugins.inter_pod_affinity.reference import Picture

NAME = "InterPodAffinity"
KEYS = ["zone", "host"]
NODE_NAMES = ["n0", "n1", "n2", "n3"]
POD_NAMES = ["p0", "p1", "p2", "p3", "p4"]
NAMESPACE_NAMES = ["default", "other", "unknown"]

pod_labels = st.fixed_dictionaries({"app": st.sampled_from(["a", "b"])}, optional={"tier": st.sampled_from(["a", "b"])})
namespace_labels = st.dictionaries(st.just("team"), st.sampled_from(["x", "y"]))
node_labels = st.fixed_dictionaries(
    {"zone": st.sampled_from(["z0", "z1"])}, optional={"host": st.sampled_from(["h0", "h1", "h2", "h3"])}
) | st.dictionaries(st.just("host"), st.sampled_from(["h0", "h1"]))


def selectors(key: str, values: list[str]) -> st.SearchStrategy[LabelSelector]:
    with_values = st.builds(
        LabelSelectorRequirement,
        key=st.just(key),
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(st.sampled_from(values), min_size=1, max_size=2),
    )
    without = st.builds(
        LabelSelectorRequirement, key=st.just(key), operator=st.sampled_from(["Exists", "DoesNotExist"])
    )
    equal = st.dictionaries(st.just(key), st.sampled_from(values))
    return st.builds(LabelSelector, match_labels=equal, match_expressions=st.lists(with_values | without, max_size=1))


plain_terms = st.builds(
    PodAffinityTerm,
    label_selector=st.sampled_from(["a", "b"]).map(lambda value: LabelSelector(match_labels={"app": value})),
    topology_key=st.sampled_from(KEYS),
)
odd_terms = st.builds(
    PodAffinityTerm,
    label_selector=st.none() | selectors("app", ["a", "b"]) | selectors("tier", ["a", "b"]),
    namespaces=st.lists(st.sampled_from(NAMESPACE_NAMES), max_size=1),
    topology_key=st.sampled_from(KEYS),
    namespace_selector=st.none() | st.just(LabelSelector()) | selectors("team", ["x", "y"]),
)
terms = plain_terms | odd_terms
required = st.lists(plain_terms, min_size=1, max_size=2) | st.lists(terms, max_size=2)
preferred = st.lists(
    st.builds(WeightedPodAffinityTerm, weight=st.integers(1, 100), pod_affinity_term=terms), max_size=1
)
sides = st.builds(
    PodAffinity,
    required_during_scheduling_ignored_during_execution=required,
    preferred_during_scheduling_ignored_during_execution=preferred,
)
affinities = st.one_of(
    st.builds(Affinity, pod_affinity=sides),
    st.builds(Affinity, pod_anti_affinity=sides),
    st.builds(Affinity, pod_affinity=sides, pod_anti_affinity=sides),
    st.just(Affinity()) | st.none(),
)
strict = st.builds(
    PodAffinity, required_during_scheduling_ignored_during_execution=st.lists(plain_terms, min_size=1, max_size=2)
)
strict_affinities = st.builds(Affinity, pod_affinity=strict) | st.builds(Affinity, pod_anti_affinity=strict)
namespaces = st.sampled_from(["default", "default", "default", *NAMESPACE_NAMES])


def make_pod(
    name: str,
    labels: dict[str, str] | None = None,
    *,
    near: PodAffinity | None = None,
    apart: PodAffinity | None = None,
    namespace: str = "default",
) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=name, labels=labels or {}),
        spec=PodSpec(affinity=Affinity(pod_affinity=near, pod_anti_affinity=apart)),
    )


def make_node(name: str, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, uid=name, labels=labels))


def must(*required: PodAffinityTerm) -> PodAffinity:
    return PodAffinity(required_during_scheduling_ignored_during_execution=list(required))


def term(key: str, **labels: str) -> PodAffinityTerm:
    return PodAffinityTerm(label_selector=LabelSelector(match_labels=labels), topology_key=key)


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace=draw(namespaces), uid=name, labels=draw(pod_labels)),
        spec=PodSpec(affinity=draw(affinities)),
    )


@st.composite
def strict_pods(draw: st.DrawFn, name: str) -> Pod:
    """Pods that concern each other."""
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=name, labels=draw(pod_labels)),
        spec=PodSpec(affinity=draw(strict_affinities)),
    )


class ClusterFixture:
    """A cluster state with the plugin on it, and beside it the plain picture that the reference reads."""

    def __init__(self, args: InterPodAffinityArgs | None = None) -> None:
        self.view = ClusterView(NodeColumns())
        self.state = ClusterState(self.view)
        self.args = args or InterPodAffinityArgs()
        self.plugin = InterPodAffinity(self.args, self.view)
        self.state.add_event_handlers([self.plugin])
        order = PluginOrder(pre_filter=(NAME,), filter=(NAME,), score=((NAME, 1),))
        self.profile = Profile("koord-scheduler", {NAME: self.plugin}, order)
        self.picture = Picture()

    def info(self, pod: Pod) -> PodInfo:
        return make_pod_info(pod)

    def evaluation(self, pod: Pod | PodInfo) -> Evaluation:
        info = pod if isinstance(pod, PodInfo) else self.info(pod)
        return Evaluation(self.profile, self.view, info)

    def set_node(self, node: Node) -> None:
        self.state.set_node(node)
        self.picture.nodes[node.metadata.name] = node

    def remove_node(self, name: str) -> None:
        """Its pods stay for a while, as they do in the API."""
        self.state.remove_node(name)
        self.picture.nodes.pop(name, None)

    def place(self, pod: Pod, name: str) -> PodInfo:
        """On a node that may be unknown; the pod may have been elsewhere, or have had other labels and terms."""
        before = self.picture.pods.pop(pod.metadata.name, None)
        if before is not None and before[0].metadata.namespace != pod.metadata.namespace:
            self.state.remove_pod(pod.metadata.uid)
        placed = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=name))
        info = self.info(placed)
        self.state.set_pod(info, name)
        self.picture.pods[pod.metadata.name] = placed, name
        return info

    def label(self, name: str, labels: dict[str, str]) -> None:
        """The labels of a pod change where it is."""
        if name in self.picture.pods:
            pod, where = self.picture.pods[name]
            self.place(
                msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels)), where
            )

    def take(self, name: str) -> None:
        self.state.remove_pod(name)
        self.picture.pods.pop(name, None)

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """New, with other labels, or (None) gone."""
        obj = Namespace(metadata=ObjectMeta(name=name, labels=labels)) if labels is not None else None
        self.state.set_object(NAMESPACES, name, obj)
        if labels is not None:
            self.picture.namespaces[name] = labels
        else:
            self.picture.namespaces.pop(name, None)


STEPS = ("node", "place", "place", "place", "label", "take", "remove", "namespace")


def renamed(pod: Pod, name: str) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name=name, uid=name))


def step(fixture: ClusterFixture, draw: Any, placed: st.SearchStrategy[Pod] = pods("placed")) -> None:  # noqa: B008
    """One event; ``placed``: what pods on nodes look like."""
    kind = draw(st.sampled_from(STEPS))
    name, pod_name = draw(st.sampled_from(NODE_NAMES)), draw(st.sampled_from(POD_NAMES))
    if kind in ("label", "take") and pod_name not in fixture.picture.pods:
        kind = "place"
    if kind == "node":
        fixture.set_node(make_node(name, **draw(node_labels)))
    elif kind == "place":
        fixture.place(renamed(draw(placed), pod_name), name)
    elif kind == "label":
        fixture.label(pod_name, draw(pod_labels))
    elif kind == "take":
        fixture.take(pod_name)
    elif kind == "remove":
        fixture.remove_node(name)
    else:
        fixture.set_namespace(draw(st.sampled_from(NAMESPACE_NAMES[:2])), draw(st.none() | namespace_labels))


@st.composite
def fixtures(draw: st.DrawFn, args: InterPodAffinityArgs | None = None) -> ClusterFixture:
    fixture = ClusterFixture(args)
    for name in NODE_NAMES[:3]:
        fixture.set_node(make_node(name, **draw(node_labels)))
    for name in NAMESPACE_NAMES[:2]:
        fixture.set_namespace(name, draw(namespace_labels))
    for _ in range(draw(st.integers(0, 10))):
        step(fixture, draw)
    return fixture
