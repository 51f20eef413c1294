"""A what-if with all plugins, beside an object that says what cannot be: a pod for a good node is placed there."""

from __future__ import annotations

import pytest

from koordinator.api.kinds import NODES
from koordinator.cli.local_cluster.programs import shipped_file
from koordinator.scheduler.configuration import load_configuration
from koordinator.simulate.object_changes import Apply
from tests.real_world.broken_objects import BROKEN_NODE, BROKEN_OBJECTS, BrokenObject
from tests.simulate.clusters import cluster, node, outcome_of, places, pod, put


@pytest.mark.parametrize("broken", BROKEN_OBJECTS, ids=lambda broken: broken.name)
def test_a_pod_is_placed_on_a_good_node(broken: BrokenObject) -> None:
    api = cluster([node("good")] + [node(BROKEN_NODE)] * (broken.kind is not NODES))
    put(api, broken.kind, broken.copy())
    confined = pod("web", nodeSelector={"kubernetes.io/hostname": "good"}, schedulerName="koord-scheduler")
    outcome = outcome_of(api, Apply([confined]), configuration=load_configuration(shipped_file("scheduler.yaml")))
    assert places(outcome).get("good") == 1
