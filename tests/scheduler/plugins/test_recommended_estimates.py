"""The estimator by recommended usage: what a pod is expected to use, and what follows when a Recommendation changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.kinds import RECOMMENDATIONS
from koordinator.api.pod import Pod
from koordinator.api.recommendation import Recommendation
from koordinator.scheduler.configuration.koordinator_arguments import LoadAwareSchedulingArgs
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.plugins.load_aware.plugin import LoadAwareScheduling
from tests.examples import examples
from tests.recommending import recommendation
from tests.scheduler.explain.scene import CONFIGURATION, NOW, Scene, make_node, make_pod
from tests.scheduler.fakes import make_state

GIBIBYTE = 2**30
WEB = {"app": "web"}
BY_RECOMMENDATION = f"""\
{CONFIGURATION.rstrip()}
    pluginConfig:
      - name: LoadAwareScheduling
        args: {{estimator: recommendedUsageEstimator}}
"""
BATCH = 5500


def made(*containers: dict[str, Any], priority: int = 9500, **spec: Any) -> Pod:
    metadata = {"name": "p", "namespace": "default", "uid": "uid-p", "labels": WEB}
    metadata["annotations"] = spec.pop("annotations", {})
    return convert({"metadata": metadata, "spec": {"priority": priority, "containers": list(containers), **spec}}, Pod)


def container(name: str, requests: dict[str, str], limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests, "limits": limits or {}}, **more}


def arguments(**changes: Any) -> LoadAwareSchedulingArgs:
    return convert({"estimator": "recommendedUsageEstimator", **changes}, LoadAwareSchedulingArgs).completed("args")


def plugin_with(*known: Recommendation, **changes: Any) -> LoadAwareScheduling:
    state = make_state()
    state.view.now = NOW
    plugin = LoadAwareScheduling(arguments(**changes), state.view)
    state.add_event_handlers([plugin])
    for each in known:
        state.set_object(RECOMMENDATIONS, each.metadata.key, each)
    return plugin


def expected(plugin: LoadAwareScheduling, pod: Pod | PodInfo) -> tuple[float, float]:
    """CPU in cores and memory in GiB."""
    cpu, memory = plugin.pre_filter(make_pod_info(pod) if isinstance(pod, Pod) else pod).state.amounts
    return cpu / 1000, memory / GIBIBYTE


ONE = {"main": {"cpu": "500m", "memory": "2Gi"}}
BOTH = {**ONE, "side": {"cpu": "100m", "memory": "1Gi"}}
MAIN = container("main", {"cpu": "4", "memory": "10Gi"})
SIDE = container("side", {"cpu": "2", "memory": "10Gi"})
CASES: dict[str, tuple[Pod, dict[str, dict[str, str]], tuple[float, float]]] = {
    "what is recommended": (made(MAIN), ONE, (0.5, 2)),
    "the sum of the containers": (made(MAIN, SIDE), BOTH, (0.6, 3)),
    "by factors where nothing is recommended": (made(MAIN, SIDE), ONE, (0.5 + 1.7, 2 + 7)),
    "of one resource alone": (made(MAIN), {"main": {"cpu": "500m"}}, (0.5, 7)),
    "of another container": (made(MAIN), {"other": {"cpu": "500m"}}, (3.4, 7)),
    "at most the limit": (made(container("main", {"cpu": "100m"}, {"cpu": "300m", "memory": "1Gi"})), ONE, (0.3, 1)),
    "of batch, whose limits have other names": (
        made(
            container(
                "main",
                {"kubernetes.io/batch-cpu": "100", "kubernetes.io/batch-memory": "1Gi"},
                {"kubernetes.io/batch-cpu": "300", "kubernetes.io/batch-memory": "3Gi"},
            ),
            priority=BATCH,
        ),
        ONE,
        (0.3, 2),
    ),
    "sidecars count and what ends before does not": (
        made(
            MAIN,
            initContainers=[container("first", {"cpu": "64"}), container("side", {"cpu": "2"}, restartPolicy="Always")],
        ),
        BOTH,
        (0.6, 3),
    ),
    "overhead comes on top": (made(MAIN, overhead={"cpu": "1", "memory": "1Gi"}), ONE, (0.5 + 0.85, 2.7)),
    "amounts of the whole pod": (
        made(MAIN, SIDE, resources={"requests": {"cpu": "32", "memory": "64Gi"}}),
        ONE,
        (0.5 + 1.7, 2 + 7),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pod_is_expected_to_use(case: str) -> None:
    pod, containers, amounts = CASES[case]
    plugin = plugin_with(recommendation("web", containers, NOW))
    assert expected(plugin, pod) == pytest.approx(amounts)


BY_FACTORS = (3.4, 7)


def test_a_recommendation_of_low_confidence_is_not_used() -> None:
    assert expected(plugin_with(recommendation("web", ONE, NOW, low_confidence=True)), made(MAIN)) == BY_FACTORS


@pytest.mark.parametrize(("hours", "amounts"), [(23, (0.5, 2)), (25, BY_FACTORS)])
def test_a_stale_recommendation_is_not_used(hours: int, amounts: tuple[float, float]) -> None:
    plugin = plugin_with(recommendation("web", ONE, NOW))
    before = expected(plugin, pod := make_pod_info(made(MAIN)))
    plugin.view.now = NOW + timedelta(hours=hours)
    plugin.on_time(plugin.view.now)
    assert (before, expected(plugin, pod)) == ((0.5, 2), amounts)


def test_one_that_is_dated_ahead_is_used_when_its_time_has_come() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    never = expected(plugin_with(recommendation("web", ONE, last)), made(MAIN))
    plugin = plugin_with(recommendation("web", ONE, NOW + timedelta(hours=30)))
    before = expected(plugin, pod := make_pod_info(made(MAIN)))
    plugin.view.now = NOW + timedelta(hours=7)
    plugin.on_time(plugin.view.now)
    assert (never, before, expected(plugin, pod)) == (BY_FACTORS, BY_FACTORS, (0.5, 2))


def test_the_factors_of_a_pod_win_over_what_is_recommended() -> None:
    own = {"scheduling.koordinator.sh/load-estimated-scaling-factors": '{"cpu": 50}'}
    plugin = plugin_with(recommendation("web", ONE, NOW), allowCustomizeEstimation=True)
    assert expected(plugin, made(MAIN, annotations=own)) == (2, 2)


@pytest.mark.parametrize("estimator", ["", "defaultEstimator", "anotherEstimator"])
def test_without_the_estimator_nobody_watches_recommendations(estimator: str) -> None:
    plugin = plugin_with(recommendation("web", ONE, NOW), estimator=estimator)
    assert plugin.watched_kinds == ()
    assert expected(plugin, made(MAIN)) == BY_FACTORS


# What follows in a cluster.


def recommend(scene: Scene, cpu: str, **changes: Any) -> None:
    new = recommendation("web", {"main": {"cpu": cpu}}, NOW, **changes)
    scene.state.set_object(RECOMMENDATIONS, new.metadata.key, new)


def scene_with(*cpu: str) -> Scene:
    """Nodes of four cores that report to use so many of them."""
    scene = Scene(*(make_node(f"n{number}") for number in range(len(cpu))), configuration=BY_RECOMMENDATION)
    for number, used in enumerate(cpu):
        scene.report(f"n{number}", cpu=used, memory="1Gi")
    return scene


def web(name: str) -> Pod:
    return make_pod(name, cpu="2", labels=WEB)


def test_identical_pods_are_placed_by_the_recommendation_of_the_moment() -> None:
    scene = scene_with("1")
    assert isinstance(scene.try_pod(web("by-factors")), Rejection)
    recommend(scene, "500m")
    assert isinstance(scene.try_pod(web("by-little")), Placement)
    recommend(scene, "1900m")
    assert isinstance(scene.try_pod(web("by-much")), Rejection)


def test_pods_that_nobody_has_measured_yet_count_by_what_is_recommended_now() -> None:
    scene = scene_with("1")
    recommend(scene, "500m")
    scene.try_pod(web("first"))
    other = make_pod("other", cpu="1")
    recommend(scene, "1")
    assert isinstance(scene.try_pod(other), Rejection)
    recommend(scene, "100m")
    assert isinstance(scene.try_pod(make_pod("another", cpu="1")), Placement)


def test_what_waits_is_woken_by_a_recommendation_that_changes_its_estimate() -> None:
    scene = scene_with("1")
    pod = scene.info(web("p"))
    plugin = scene.profile.plugins["LoadAwareScheduling"]
    old, new = (recommendation("web", {"main": {"cpu": cpu}}, NOW) for cpu in ("2", "1"))
    later = recommendation("web", {"main": {"cpu": "2"}}, NOW + timedelta(minutes=10))
    assert "Recommendation/Update" in plugin.events_to_register()
    assert plugin.queueing_hint(pod, ClusterEvent("Recommendation/Update", old, new))
    assert not plugin.queueing_hint(pod, ClusterEvent("Recommendation/Update", old, later))


def test_explanations_name_the_recommendation() -> None:
    scene = scene_with("1")
    recommend(scene, "1900m")
    scene.try_pod(web("p"))
    document = scene.pod("p")
    assert document["facts"] == {
        "LoadAwareScheduling": [
            "It is expected to use 1.9 cores of cpu and 716.8Mi of memory, by Recommendation default/web."
        ]
    }
    assert document["closestNodes"][0]["lacks"][0]["details"] == [
        "cpu: expected usage 72 %, threshold 65 % (1 core of 4 cores used now, the pod is expected to add 1.9 cores, "
        "by Recommendation default/web)"
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"app": "db"}, "by its requests: no Recommendation is about it."),
        ({"low_confidence": True}, "by its requests: Recommendation default/web is of low confidence: 0.2 days."),
    ],
)
def test_explanations_say_why_no_recommendation_counts(changes: dict[str, Any], why: str) -> None:
    scene = scene_with("1")
    recommend(scene, "500m", **changes)
    scene.try_pod(web("p"))
    assert scene.pod("p")["facts"]["LoadAwareScheduling"][0].endswith(why)


# Whatever happens, in whatever order.

STEPS = st.lists(
    st.sampled_from(
        ["recommend", "recommend", "withdraw", "assume", "assume", "confirm", "remove", "leave", "later", "later"]
    ),
    min_size=8,
    max_size=25,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 32), STEPS)
def test_pods_on_nodes_count_as_if_they_had_come_last(seed: int, steps: list[str]) -> None:
    random = Random(seed)
    state, now = make_state(), NOW
    plugin = LoadAwareScheduling(arguments(), state.view)
    state.add_event_handlers([plugin])
    state.set_node(make_node("n0"))
    for step in steps:
        now += timedelta(hours=5 if step == "later" else 0)
        state.view.now = now
        name = random.choice("ab")
        if step == "recommend":
            written = now - timedelta(hours=random.choice((0, 0, 20)))
            containers = {random.choice(("main", "main", "other")): {"cpu": f"{random.randint(1, 3)}00m"}}
            app, doubt = random.choice(("web", "db")), not random.randrange(4)
            new = recommendation(name, containers, written, app=app, low_confidence=doubt)
            state.set_object(RECOMMENDATIONS, new.metadata.key, new)
        elif step == "withdraw":
            state.set_object(RECOMMENDATIONS, f"default/{name}", None)
        elif step == "leave":
            if not state.remove_node("n0"):
                state.set_node(make_node("n0"))
        elif step == "remove":
            state.remove_pod(f"uid-{name}")
        elif step != "later":
            pod = make_pod_info(make_pod(name, labels={"app": random.choice(("web", "db"))}))
            (state.assume if step == "assume" else state.set_pod)(pod, state.node_of(pod.uid) or "n0")
        plugin.on_time(now)
        anew = LoadAwareScheduling(plugin.args, state.view)
        for key, known in state.view.objects_of(RECOMMENDATIONS).items():
            anew.on_object(RECOMMENDATIONS, key, None, known)
        for row, node in plugin._nodes.items():
            pods = state.view.pods_on.get(row, {})
            expected_now = {uid: each.expected for uid, each in node.pods.items()}
            assert expected_now == {uid: anew.pre_filter(make_pod_info(each.pod)).state for uid, each in pods.items()}
    recommended = plugin._recommended
    assert recommended is not None
    on_nodes = {uid for pods in state.view.pods_on.values() for uid in pods}
    assert recommended._source_of.keys() == on_nodes
    assert {uid for of_source in recommended._pods.values() for uid in of_source} == on_nodes
