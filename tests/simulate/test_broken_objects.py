"""A what-if with all plugins, beside objects that say what cannot be: a pod for a good node is placed there."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import pytest

from koordinator.api.kinds import NODES
from koordinator.cli.local_cluster.programs import shipped_file
from koordinator.scheduler.configuration import SchedulerConfiguration, load_configuration
from koordinator.simulate.object_changes import Apply
from tests.real_world.broken_objects import BROKEN_NODE, BROKEN_OBJECTS, BrokenObject
from tests.simulate.clusters import cluster, node, outcome_of, places, pod, put


def _rounds() -> list[list[BrokenObject]]:
    """As many at once as have names of their own: a what-if of each alone would take half a minute, and the tests of
    the scheduler have each alone."""
    by_name: defaultdict[tuple[str, str, str], list[BrokenObject]] = defaultdict(list)
    for broken in BROKEN_OBJECTS:
        metadata = broken.copy().get("metadata", {})
        by_name[broken.kind.plural, metadata.get("namespace", ""), metadata.get("name", "")].append(broken)
    return [
        [each[number] for each in by_name.values() if number < len(each)]
        for number in range(max(map(len, by_name.values())))
    ]


ROUNDS: Final = _rounds()


@pytest.fixture(scope="module")
def configuration() -> SchedulerConfiguration:
    return load_configuration(shipped_file("scheduler.yaml"))


@pytest.mark.parametrize("objects", ROUNDS, ids=lambda objects: f"{objects[0].name} and {len(objects) - 1} more")
def test_a_pod_is_placed_on_a_good_node(objects: list[BrokenObject], configuration: SchedulerConfiguration) -> None:
    api = cluster([node("good")] + [node(BROKEN_NODE)] * all(broken.kind is not NODES for broken in objects))
    for broken in objects:
        put(api, broken.kind, broken.copy())
    confined = pod("web", nodeSelector={"kubernetes.io/hostname": "good"}, schedulerName="koord-scheduler")
    outcome = outcome_of(api, Apply([confined]), configuration=configuration)
    assert places(outcome).get("good") == 1


def test_no_broken_object_is_left_out() -> None:
    assert sum(map(len, ROUNDS)) == len(BROKEN_OBJECTS)
