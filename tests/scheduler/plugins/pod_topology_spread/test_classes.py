"""Which pods share a result: equal keys imply equal results, and what decides nothing tells no classes apart."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.meta import LabelSelector
from koordinator.api.pod import Pod, PodSpec, Toleration
from tests.examples import examples
from tests.scheduler.plugins.pod_topology_spread.dice import Dice
from tests.scheduler.plugins.pod_topology_spread.fixtures import (
    ClusterFixture,
    Evaluated,
    class_key,
    spread,
    spread_pod,
)
from tests.scheduler.plugins.pod_topology_spread.reference import HOSTNAME, ZONE


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32))
def test_equal_keys_imply_equal_results(seed: int) -> None:
    dice = Dice(seed)
    fixture = dice.fixture()
    pods = [dice.incoming_pod() for _ in range(3)]
    found: dict[Hashable, Evaluated] = {}
    for metadata in [pod.metadata for pod in pods]:
        for spec in [pod.spec for pod in pods]:
            mixed = Pod(metadata=metadata, spec=spec)
            result = fixture.evaluate_afresh(mixed)
            assert found.setdefault(class_key(fixture, fixture.info(mixed)), result) == result


@pytest.mark.parametrize(
    ("left", "right", "shared"),
    [
        ({"app": "a"}, {"app": "a", "unrelated": "1"}, True),
        ({"app": "a"}, {"app": "b"}, False),
        ({"app": "a", "version": "1"}, {"app": "a", "version": "2"}, False),
        ({"app": "b"}, {"app": "c"}, True),
    ],
)
def test_only_labels_that_matter_tell_classes_apart(left: dict[str, str], right: dict[str, str], shared: bool) -> None:
    fixture, constraint = ClusterFixture(), spread(ZONE, keys=("version",))
    keys = {class_key(fixture, fixture.info(spread_pod("p", labels, constraint))) for labels in (left, right)}
    assert (len(keys) == 1) is shared


def test_pods_that_belong_to_nothing_are_of_one_class() -> None:
    fixture = ClusterFixture()
    fixture.set_service("s", {"app": "a"})
    keys = {class_key(fixture, fixture.info(spread_pod("p", {"app": app}))) for app in ("b", "c")}
    assert keys == {(None, None)}


def test_a_service_makes_another_class_of_its_pods() -> None:
    fixture = ClusterFixture()
    pod = fixture.info(spread_pod("p", {"app": "a"}))
    before = class_key(fixture, pod)
    fixture.set_service("s", {"app": "a"})
    assert class_key(fixture, pod) != before


@pytest.mark.parametrize(
    "change",
    [
        {"max_skew": 2},
        {"topology_key": HOSTNAME},
        {"label_selector": LabelSelector(match_labels={"app": "b"})},
        {"label_selector": None},
        {"node_affinity_policy": "Ignore"},
        {"node_taints_policy": "Honor"},
    ],
)
@pytest.mark.parametrize("action", ["DoNotSchedule", "ScheduleAnyway"])
def test_all_that_a_constraint_says_tells_classes_apart(action: str, change: dict[str, Any]) -> None:
    fixture, constraint = ClusterFixture(), spread(ZONE, action)
    other = msgspec.structs.replace(constraint, **change)
    keys = {class_key(fixture, fixture.info(spread_pod("p", {"app": "a"}, each))) for each in (constraint, other)}
    assert len(keys) == 2


@pytest.mark.parametrize(("policy", "classes"), [("Honor", 2), ("Ignore", 1), (None, 1)])
def test_tolerations_matter_where_taints_are_honored(policy: str | None, classes: int) -> None:
    fixture, constraint = ClusterFixture(), msgspec.structs.replace(spread(ZONE), node_taints_policy=policy)
    specs = [
        PodSpec(topology_spread_constraints=[constraint], tolerations=tolerations)
        for tolerations in ([], [Toleration(key="x", operator="Exists")])
    ]
    metadata = spread_pod("p", {}).metadata
    assert len({class_key(fixture, fixture.info(Pod(metadata=metadata, spec=spec))) for spec in specs}) == classes


@pytest.mark.parametrize(("policy", "classes"), [("Honor", 2), ("Ignore", 1), (None, 2)])
def test_node_selectors_matter_where_affinity_is_honored(policy: str | None, classes: int) -> None:
    fixture, constraint = ClusterFixture(), msgspec.structs.replace(spread(ZONE), node_affinity_policy=policy)
    specs = [
        PodSpec(topology_spread_constraints=[constraint], node_selector=selector) for selector in ({}, {ZONE: "a"})
    ]
    metadata = spread_pod("p", {}).metadata
    assert len({class_key(fixture, fixture.info(Pod(metadata=metadata, spec=spec))) for spec in specs}) == classes
