"""ImageLocality against a plain version, by examples, and while nodes and images come and go."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import ContainerImage, Node, NodeStatus
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.image_locality import ImageLocality, normalized_name
from tests.examples import examples

MEBIBYTE: Final = 2**20
Images = Sequence[tuple[Sequence[str], int]]
"""(names, size)."""
LARGE: Final[Images] = [(("x:1",), 1000 * MEBIBYTE)]


def make_node(name: str, images: Images) -> Node:
    found = [ContainerImage(names=list(names), size_bytes=size) for names, size in images]
    return Node(metadata=ObjectMeta(name=name, uid=name), status=NodeStatus(images=found))


def make_pod(name: str, *images: str, init: Sequence[str] = ()) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=name),
        spec=PodSpec(
            containers=[Container(name=f"c{index}", image=image) for index, image in enumerate(images)],
            init_containers=[Container(name=f"i{index}", image=image) for index, image in enumerate(init)],
        ),
    )


class ClusterFixture:
    """A cluster with this one plugin on it, and its nodes' images for the plain version."""

    def __init__(self, **nodes: Images) -> None:
        self.view = ClusterView(NodeColumns())
        self.state = ClusterState(self.view)
        self.plugin = ImageLocality(None, self.view)
        self.state.add_event_handlers([self.plugin])
        self.profile = Profile("s", {self.plugin.name: self.plugin}, PluginOrder(score=((self.plugin.name, 1),)))
        self.images: dict[str, Images] = {}
        for name, images in nodes.items():
            self.set_node(name, images)

    def set_node(self, name: str, images: Images) -> None:
        self.state.set_node(make_node(name, images))
        self.images[name] = images

    def remove_node(self, name: str) -> None:
        self.state.remove_node(name)
        self.images.pop(name, None)

    def info(self, pod: Pod) -> PodInfo:
        return make_pod_info(pod)

    def evaluation(self, pod: PodInfo) -> Evaluation:
        return Evaluation(self.profile, self.view, pod)

    def scores(self, evaluation: Evaluation) -> dict[str, int]:
        evaluation.refresh()
        return {name: int(evaluation.totals[row]) for name, row in self.view.columns.row_of.items()}

    def scores_of(self, pod: Pod) -> dict[str, int]:
        return self.scores(self.evaluation(self.info(pod)))


def plain_scores(pod: Pod, nodes: Mapping[str, Images]) -> dict[str, int]:
    return {name: plain_score(pod, name, nodes) for name in nodes}


def plain_score(pod: Pod, name: str, nodes: Mapping[str, Images]) -> int:
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    total = 0
    for container in containers:
        image = normalized_name(container.image)
        holders = [node for node in nodes if plain_size(image, nodes[node]) is not None]
        if name in holders:
            total += int(float(plain_size(image, nodes[name]) or 0) * (len(holders) / len(nodes)))
    least, most = 23 * MEBIBYTE, 1000 * MEBIBYTE * len(containers)
    return 100 * (min(max(total, least), most) - least) // (most - least)


def plain_size(image: str, images: Images) -> int | None:
    return next((size for names, size in images if image in names), None)


NODE_NAMES = ("n0", "n1", "n2", "n3")
NAMES = ("a:1", "b:latest", "r.io:5000/c:2", "a@sha256:0")
image_lists = st.lists(
    st.tuples(
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(tuple),
        st.integers(0, 3000).map(lambda size: size * MEBIBYTE + 7),
    ),
    max_size=3,
).map(tuple)
image_names = st.lists(st.sampled_from(("a:1", "b", "r.io:5000/c:2", "a@sha256:0", "never")), min_size=1, max_size=3)


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    return make_pod(name, *draw(image_names), init=draw(st.just([]) | image_names))


@settings(max_examples=examples(60))
@given(st.data())
def test_agrees_with_the_plain_version_while_nodes_and_images_come_and_go(data: st.DataObject) -> None:
    fixture = ClusterFixture()
    pods_ = [data.draw(pods(f"p{number}")) for number in range(3)]
    incoming = [fixture.info(pod) for pod in pods_]
    classes: dict[Hashable, Evaluation] = {}
    fixture.set_node("n0", data.draw(image_lists))
    for _ in range(data.draw(st.integers(1, 8))):
        name = data.draw(st.sampled_from(NODE_NAMES))
        if data.draw(st.integers(0, 3)):
            fixture.set_node(name, data.draw(image_lists))
        else:
            fixture.remove_node(name)
        for pod in incoming:
            # Classes that are not looked at now have more to catch up with later.
            if data.draw(st.booleans()) and fixture.images:
                key = fixture.profile.class_key(pod)
                if key not in classes:
                    classes[key] = fixture.evaluation(pod)
                assert fixture.scores(classes[key]) == plain_scores(pod.pod, fixture.images)


def test_an_image_counts_by_its_size_and_by_how_many_nodes_have_it() -> None:
    fixture = ClusterFixture(a=LARGE, b=[])
    assert fixture.scores_of(make_pod("p", "x:1")) == {"a": 48, "b": 0}
    fixture.set_node("b", LARGE)
    assert fixture.scores_of(make_pod("p", "x:1")) == {"a": 100, "b": 100}


def test_small_images_do_not_count() -> None:
    assert ClusterFixture(a=[(("x:1",), 22 * MEBIBYTE)]).scores_of(make_pod("p", "x:1")) == {"a": 0}


def test_each_container_raises_what_is_needed_for_the_highest_score() -> None:
    fixture = ClusterFixture(a=LARGE)
    assert fixture.scores_of(make_pod("p", "x:1", "y", init=["z"])) == {"a": 100 * 977 // 2977}


def test_a_node_that_comes_makes_an_image_rarer() -> None:
    fixture = ClusterFixture(a=LARGE)
    evaluation = fixture.evaluation(fixture.info(make_pod("p", "x:1")))
    assert fixture.scores(evaluation) == {"a": 100}
    fixture.set_node("b", [])
    assert fixture.scores(evaluation) == {"a": 48, "b": 0}


def test_the_nodes_own_size_counts() -> None:
    fixture = ClusterFixture(a=LARGE, b=[(("x:1",), 500 * MEBIBYTE)])
    assert fixture.scores_of(make_pod("p", "x:1")) == {"a": 100, "b": 48}


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("root", "root:latest"),
        ("root:tag", "root:tag"),
        ("registry.io:5000/root", "registry.io:5000/root:latest"),
        ("registry.io:5000/root:tag", "registry.io:5000/root:tag"),
        ("root@sha256:0a", "root@sha256:0a"),
    ],
)
def test_names_get_a_tag(image: str, name: str) -> None:
    assert normalized_name(image) == name


def test_pods_whose_images_no_node_has_are_of_one_class() -> None:
    fixture = ClusterFixture(a=LARGE)
    one, other, at_home = (fixture.info(make_pod(image, image)) for image in ("y", "z", "x:1"))
    assert fixture.profile.class_key(one) == fixture.profile.class_key(other) != fixture.profile.class_key(at_home)


def test_pods_whose_images_are_too_rare_to_count_are_of_the_same_class() -> None:
    fixture = ClusterFixture(a=LARGE, **{f"n{number}": [] for number in range(50)})
    one, other = (fixture.info(make_pod(image, image)) for image in ("y", "x:1"))
    assert fixture.profile.class_key(one) == fixture.profile.class_key(other)


def test_a_pod_changes_its_class_when_a_node_has_pulled_its_image() -> None:
    fixture = ClusterFixture(a=[])
    pod = fixture.info(make_pod("p", "x:1"))
    before = fixture.profile.class_key(pod)
    fixture.set_node("a", LARGE)
    assert fixture.profile.class_key(pod) != before


def test_images_that_stay_the_same_change_no_score() -> None:
    fixture = ClusterFixture(a=LARGE, b=[])
    pod = fixture.info(make_pod("p", "x:1"))
    state = fixture.plugin.pre_score(pod)
    state.scores(np.ones(2, dtype=np.bool_))
    fixture.set_node("a", LARGE)
    rows = fixture.view.columns.alive[:2].nonzero()[0]
    assert not fixture.plugin.apply_score_delta(pod, state, rows)
