"""Gangs that are pod groups of Workloads of scheduling.k8s.io move whole."""

from __future__ import annotations

import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import GENERIC_WORKLOADS, PODS
from koordinator.api.pod import Pod
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import SimulatedCluster


@pytest.mark.parametrize(("gate", "together"), [(True, ["web-0", "web-1"]), (False, None)])
def test_the_pods_of_a_pod_group_move_together(gate: bool, together: list[str] | None) -> None:
    cluster = SimulatedCluster(others=(GENERIC_WORKLOADS,))
    for number in range(2):
        document = scene.pod(cluster, f"web-{number}")
        document["spec"]["workloadRef"] = {"name": "training", "podGroup": "workers"}
        cluster.put(PODS, document)
    groups = [{"name": "workers", "policy": {"gang": {"minCount": 2}}}]
    metadata = {"namespace": "default", "name": "training"}
    cluster.put(GENERIC_WORKLOADS, {"metadata": metadata, "spec": {"podGroups": groups}})
    gates = frozenset({"GenericWorkload"}) if gate else frozenset[str]()
    plugin = cluster.start(MigrationControllerArgs(gang_policy="Whole"), gates=gates)
    gang = plugin._gangs.of(convert(cluster.documents(PODS)["default/web-0"], Pod))
    assert (gang and [member.metadata.name for member in gang.members]) == together
