"""Plugins written for one node at a time decide exactly what their methods say, and mistakes in them are named."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.kinds import NODE_METRICS
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.columns import Aspect
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.framework import Plugin, PluginError, Reason, ScorePlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.plugins.scalar import ScalarFilterPlugin, ScalarNode, ScalarScorePlugin
from tests.examples import examples
from tests.scheduler.fakes import describe, make_node, make_pod, make_state

SAME_SIZE = "node(s) had a pod of that size"
OTHER_ZONE = Reason("node(s) were in another zone", unresolvable=True)


def evaluate(pod: Pod, node: Node, placed: list[Pod], free_cpu: int) -> str | Reason | None:
    labels = pod.metadata.labels
    if "zone" in labels and node.metadata.labels.get("zone") != labels["zone"]:
        return OTHER_ZONE
    if free_cpu < 500:
        return "too little cpu"
    size = labels.get("size")
    return SAME_SIZE if size and any(other.metadata.labels.get("size") == size for other in placed) else None


def rate(node: Node, placed: list[Pod], free_cpu: int) -> int:
    return free_cpu + 7 * len(placed) - 1000 * len(node.metadata.labels)


class Particular(ScalarFilterPlugin, ScalarScorePlugin):
    name = "Particular"

    def class_key(self, pod: PodInfo) -> Hashable:
        return tuple(sorted(pod.pod.metadata.labels.items()))

    def filter_node(self, pod: Pod, node: ScalarNode) -> str | Reason | None:
        return evaluate(pod, node.node, node.pods, node.free("cpu"))

    def score_node(self, pod: Pod, node: ScalarNode) -> int:
        return rate(node.node, node.pods, node.free("cpu"))

    def normalize_scores(self, pod: Pod, scores: Mapping[str, int]) -> Mapping[str, int]:
        return by_rank(scores)


def by_rank(scores: Mapping[str, int]) -> dict[str, int]:
    order = sorted(set(scores.values()))
    return {name: order.index(score) for name, score in scores.items()}


class Plain:
    """The cluster once more, as a list of pods for each node."""

    def __init__(self) -> None:
        self.state = make_state()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, list[Pod]] = {}

    def set_node(self, node: Node) -> None:
        self.state.set_node(node)
        self.nodes[node.metadata.name] = node
        self.pods.setdefault(node.metadata.name, [])

    def remove_node(self, name: str) -> None:
        del self.nodes[name]
        for pod in self.pods.pop(name):
            self.state.remove_pod(pod.metadata.uid)
        self.state.remove_node(name)

    def place(self, pod: Pod, name: str) -> None:
        self.take(pod.metadata.name)
        self.state.set_pod(describe(pod), name)
        self.pods[name].append(pod)

    def take(self, pod_name: str) -> None:
        self.state.remove_pod(f"uid-{pod_name}")
        self.pods = {name: [pod for pod in pods if pod.metadata.name != pod_name] for name, pods in self.pods.items()}

    def filter_results(self, pod: Pod) -> dict[str, str | Reason | int]:
        """Node -> why not, or its score; asked node by node."""
        responses: dict[str, str | Reason | None] = {}
        raw: dict[str, int] = {}
        for name, node in self.nodes.items():
            used = sum(each.spec.containers[0].resources.requests["cpu"].milli for each in self.pods[name])
            free = node.status.allocatable["cpu"].milli - used
            responses[name] = evaluate(pod, node, self.pods[name], free)
            raw[name] = rate(node, self.pods[name], free)
        ranks = by_rank({name: raw[name] for name, response in responses.items() if response is None})
        return {name: ranks[name] if response is None else response for name, response in responses.items()}


def adapted(plain: Plain, evaluation: Evaluation) -> dict[str, str | Reason | int]:
    evaluation.refresh()
    found: dict[str, str | Reason | int] = {}
    for name, row in plain.state.view.columns.row_of.items():
        failure = evaluation.failure_of(row)
        if failure is None:
            found[name] = int(evaluation.totals[row])
        else:
            (reason,) = failure.plugin.reasons(evaluation.pod, failure.state, failure.code)
            found[name] = reason if reason.unresolvable else reason.text
    return found


names = st.sampled_from(["a", "b", "c"])
labels = st.dictionaries(st.sampled_from(["zone", "size"]), st.sampled_from(["x", "y"]))
cpus = st.sampled_from(["0", "500m", "1", "2"])
changes = st.lists(
    st.tuples(st.sampled_from(["node", "place", "take", "remove"]), names, names, cpus, labels), max_size=8
)


@settings(max_examples=examples(50))
@given(changes, labels)
def test_the_adapter_follows_the_cluster_as_asking_node_by_node_does(
    steps: list[tuple[str, str, str, str, dict[str, str]]], wanted: dict[str, str]
) -> None:
    plain, incoming = Plain(), make_pod("incoming", labels=wanted)
    plugin = Particular(None, plain.state.view)
    profile = Profile("p", {plugin.name: plugin}, PluginOrder(filter=(plugin.name,), score=((plugin.name, 1),)))
    following = Evaluation(profile, plain.state.view, describe(incoming))
    for step, name, other, cpu, some_labels in steps:
        if step == "node" or name not in plain.nodes:
            plain.set_node(make_node(name, cpu=cpu, labels=some_labels))
        elif step == "place":
            plain.place(make_pod(other, cpu=cpu, labels=some_labels), name)
        elif step == "take":
            plain.take(other)
        else:
            plain.remove_node(name)
        assert adapted(plain, following) == plain.filter_results(incoming)


class Responses(ScalarFilterPlugin, ScalarScorePlugin):
    """Answers whatever it is given as args."""

    name = "Answers"

    def filter_node(self, pod: Pod, node: ScalarNode) -> str | None:
        return self._response(node)  # type: ignore[no-any-return]

    def score_node(self, pod: Pod, node: ScalarNode) -> int:
        return self._response(node)  # type: ignore[no-any-return]

    def _response(self, node: ScalarNode) -> Any:
        return self.args(node) if callable(self.args) else self.args


class NormalizedResponses(Responses):
    """Scores 0, and normalizes to what it is given."""

    def score_node(self, pod: Pod, node: ScalarNode) -> int:
        return 0

    def normalize_scores(self, pod: Pod, scores: Mapping[str, int]) -> Mapping[str, int]:
        return self.args  # type: ignore[no-any-return]


def make(response: Any, kind: type[Responses] = Responses) -> Responses:
    return kind(response, make_state([make_node("a", cpu="4")]).view)


POD = describe(make_pod("p"))
ROWS = np.array([0], dtype=np.intp)


@pytest.mark.parametrize("response", [True, False, 0, "", ("why",), Reason("")])
def test_a_response_that_is_no_reason_is_an_error(response: Any) -> None:
    with pytest.raises(PluginError, match=r"plugin Answers: filter_node of node a returned .*; expected is None or a"):
        make(response).filter(POD, None, ROWS)


@pytest.mark.parametrize("response", [None, True, 1.0, "1"])
def test_a_score_that_is_no_whole_number_is_an_error(response: Any) -> None:
    with pytest.raises(PluginError, match=r"plugin Answers: score_node of node a returned .*; expected is a whole num"):
        make(response).score(POD, None, ROWS)


@pytest.mark.parametrize(("response", "score"), [(-1, -1), (101, 101), (10**30, 2**63 - 1), (-(10**30), -(2**63))])
def test_a_score_beyond_the_scale_is_left_to_the_engine(response: int, score: int) -> None:
    assert make(response).score(POD, None, ROWS[:1]).tolist() == [score]


def test_numbers_of_numpy_are_whole_numbers() -> None:
    assert make(np.int32(7)).score_one(POD, None, 0) == 7


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ({}, "normalize_scores of node a returned None; expected is a whole number"),
        ([3], r"normalize_scores returned \[3\]; expected is a mapping"),
    ],
)
def test_scores_that_cannot_be_normalized_are_an_error(response: Any, error: str) -> None:
    with pytest.raises(PluginError, match=error):
        make(response, NormalizedResponses).normalize(
            POD, None, np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.bool_)
        )


def test_with_no_node_left_there_is_nothing_to_normalize() -> None:
    plugin = make({}, NormalizedResponses)
    assert plugin.normalize(POD, None, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.bool_)) is None


def test_only_a_plugin_that_normalizes_costs_a_pass_over_all_nodes() -> None:
    assert Responses.normalize is ScorePlugin.normalize
    assert NormalizedResponses.normalize is not ScorePlugin.normalize


def test_an_exception_names_the_plugin_and_the_node() -> None:
    def fail(node: ScalarNode) -> None:
        raise ValueError("no such thing")

    with pytest.raises(
        PluginError, match="plugin Answers: filter_node of node a fails: ValueError: no such thing"
    ) as e:
        make(fail).filter_one(POD, None, 0)
    assert isinstance(e.value.__cause__, ValueError)


def test_a_node_shows_amounts_in_whole_numbers() -> None:
    state = make_state([make_node("a", cpu="4", memory="8Gi", labels={"zone": "z"})])
    state.set_pod(describe(make_pod("p", cpu="1500m", memory="1Gi")), "a")
    node = ScalarNode(state.view, 0)
    assert (node.name, node.labels, [pod.metadata.name for pod in node.pods]) == ("a", {"zone": "z"}, ["p"])
    assert (node.allocatable("cpu"), node.requested("cpu"), node.free("cpu")) == (4000, 1500, 2500)
    assert (node.free("memory"), node.free("pods"), node.free("example.com/none")) == (7 * 2**30, 109, 0)


def test_a_plugin_that_gives_ever_new_reasons_stays_small() -> None:
    numbers = iter(range(20_000))
    plugin = make(lambda node: f"reason {next(numbers)}")
    codes = [plugin.filter_one(POD, None, 0) for _ in range(20_000)]
    assert plugin.reasons(POD, None, codes[41])[0].text == "reason 41"
    assert "too many different reasons" in plugin.reasons(POD, None, codes[-1])[0].text
    assert len(set(codes)) == 10_001


class OfNodesAlone(Responses):
    name = "OfNodesAlone"
    reads = (Aspect.NODE,)
    node_objects = (NODE_METRICS,)


def test_evicting_pods_is_no_cure_where_only_the_node_counts() -> None:
    for kind, unresolvable in ((Responses, False), (OfNodesAlone, True)):
        plugin = make("why", kind)
        assert plugin.reasons(POD, None, plugin.filter_one(POD, None, 0)) == (Reason("why", unresolvable),)


def test_a_plugin_wakes_pods_for_what_it_reads() -> None:
    everything = make(None).events_to_register()
    assert {EventKind.NODE_ADD, EventKind.NODE_LABEL, EventKind.POD_DELETE, EventKind.POD_LABEL} <= everything
    plugin: Plugin = make(None, OfNodesAlone)
    assert {EventKind.NODE_ADD, EventKind.NODE_LABEL, "NodeMetric/Update"} <= plugin.events_to_register()
    assert EventKind.POD_DELETE not in plugin.events_to_register()
