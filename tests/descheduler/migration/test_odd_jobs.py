"""A job or a pod that nobody has thought of keeps no other job from being let through, carried out and scavenged."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import pytest

from koordinator.api.codec import convert, to_document
from koordinator.api.kinds import POD_MIGRATION_JOBS, PODS
from koordinator.base.errors import KoordinatorError
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.descheduler.migration.plugin import MigrationController
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import SimulatedCluster
from tests.descheduler.test_odd_objects import PODS as ODD_PODS

_PASSED: Final = {"descheduler.koordinator.sh/passed-arbitration": "true"}
_REFERENCE: Final = {"namespace": "default", "name": "web-0"}
_ARGS: Final = {
    "evictBurst": 9,
    "maxMigratingPerNode": 0,
    "skipEvictionGates": ["MaxMigratingPerWorkload", "MaxUnavailablePerWorkload"],
    "objectLimiters": {"workload": {"duration": "0s"}},
}
"""No limit makes the good job wait for the odd one."""
ODD: Final[Mapping[str, dict[str, Any]]] = {
    "without a spec": {"spec": {}},
    "without a pod": {"spec": {"podRef": {}}},
    "of a namesake": {"spec": {"podRef": {**_REFERENCE, "uid": "another"}}},
    "of another mode": {"spec": {"podRef": _REFERENCE, "mode": "Sideways"}},
    "whose time was over before it began": {"spec": {"podRef": _REFERENCE, "ttl": "-1h"}},
    "whose time is never over": {"spec": {"podRef": _REFERENCE, "ttl": "2562047h47m16.854775807s"}},
    "from the end of time": {
        "metadata": {"creationTimestamp": "9999-12-31T23:59:59Z"},
        "spec": {"podRef": _REFERENCE, "ttl": "5m"},
    },
    "from the beginning of time": {
        "metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"},
        "spec": {"podRef": _REFERENCE},
    },
    "in a phase that does not exist": {"spec": {"podRef": _REFERENCE}, "status": {"phase": "Odd"}},
    "with conditions that say nothing": {
        "spec": {"podRef": _REFERENCE},
        "status": {"phase": "Running", "conditions": [{}, {"type": "Eviction"}, {"type": "Eviction"}]},
    },
    "with annotations of others": {
        "metadata": {
            "annotations": {
                **_PASSED,
                "descheduler.koordinator.sh/evicted-pod": "",
                "descheduler.koordinator.sh/evicted-pod-controller": "\x00",
            }
        },
        "spec": {"podRef": _REFERENCE, "mode": "EvictDirectly"},
    },
    "with options beyond all time": {
        "spec": {"podRef": _REFERENCE, "mode": "EvictDirectly", "deleteOptions": {"gracePeriodSeconds": 2**62}}
    },
    "owned by nobody": {
        "metadata": {"ownerReferences": [{"kind": "DrainNode", "controller": True}]},
        "spec": {"podRef": _REFERENCE},
    },
}


def _cluster() -> SimulatedCluster:
    cluster = SimulatedCluster()
    scene.deployment(cluster)
    for name in ("web-0", "web-1"):
        scene.pod(cluster, name)
    scene.job(cluster, "web-1", "good", passed=False, mode="EvictDirectly")
    return cluster


async def _work(cluster: SimulatedCluster, plugin: MigrationController) -> None:
    """All that goes on in a while, and kubelet, which ends pods at once."""
    for _ in range(4):
        cluster.deliver()
        await plugin.arbitrator.arbitrate()
        cluster.deliver()
        for name in list(cluster.documents(POD_MIGRATION_JOBS)):
            try:
                await plugin.controller.reconcile(name)
            except (KoordinatorError, OverflowError):
                # Tried again, as the queue does.
                assert name == "odd"
        for key, pod in list(cluster.documents(PODS).items()):
            if "deletionTimestamp" in pod["metadata"]:
                cluster.remove(PODS, key)
        await cluster.clock.advance(1)


def _assert_good_job_is_done_and_scavenged(cluster: SimulatedCluster) -> None:
    plugin = cluster.start(convert(_ARGS, MigrationControllerArgs))
    with asyncio.Runner() as runner:
        runner.run(_work(cluster, plugin))
        assert cluster.status("good")["phase"] == "Succeeded"
        runner.run(cluster.clock.advance(3600))
        runner.run(plugin.scavenger.scavenge())
    assert "good" not in cluster.documents(POD_MIGRATION_JOBS)


@pytest.mark.parametrize("what", ODD)
def test_a_job(what: str) -> None:
    cluster = _cluster()
    given = ODD[what]
    cluster.put(POD_MIGRATION_JOBS, {**given, "metadata": {**given.get("metadata", {}), "name": "odd"}})
    _assert_good_job_is_done_and_scavenged(cluster)


@pytest.mark.parametrize("what", ODD_PODS)
def test_a_job_of_a_pod(what: str) -> None:
    cluster = _cluster()
    cluster.put(PODS, to_document(ODD_PODS[what]))
    scene.job(cluster, "odd", "odd", passed=False)
    _assert_good_job_is_done_and_scavenged(cluster)
