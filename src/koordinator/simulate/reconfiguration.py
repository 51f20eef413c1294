"""Changes the scheduler's configuration: the effect on pending pods, and where all pods would be if it had always been
in force."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from koordinator.api.document import Document
from koordinator.api.kinds import PODS
from koordinator.scheduler.configuration import SchedulerConfiguration
from koordinator.simulate.captured_log import captured_log
from koordinator.simulate.change import Change, Remarks
from koordinator.simulate.configurations import with_kube_scheduler
from koordinator.simulate.pod_documents import is_finished, is_mirror, key_of, owner_of
from koordinator.simulate.pod_life import FROM_SCHEDULER, NOT_REPLACED
from koordinator.simulate.simulated_cluster import SimulatedCluster, SimulationOptions, simulated
from koordinator.simulate.snapshot import Snapshot

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Reconfigure(Change):
    """Restart the scheduler with another configuration. Pods that have a node keep it."""

    configuration: SchedulerConfiguration
    source: str

    async def apply(self, cluster: SimulatedCluster, remarks: Remarks) -> None:
        await cluster.restart(with_kube_scheduler(self.configuration))
        await cluster.settle()
        remarks.done = f"the scheduler runs with {self.source}"
        remarks.notes += self.configuration.warnings


async def replay(
    snapshot: Snapshot,
    before: SchedulerConfiguration,
    after: SchedulerConfiguration,
    options: SimulationOptions | None = None,
) -> dict[str, Any]:
    """Compare where all pods would be if each configuration had placed them from the start, in the order of their
    creation."""
    emptied = without_placements(snapshot, {profile.scheduler_name for profile in (*before.profiles, *after.profiles)})
    places = []
    for configuration in (before, after):
        # Two large clusters need not be in memory at the same time.
        gc.collect()
        places.append(await _places(emptied, with_kube_scheduler(configuration), options))
    counts = [Counter(place.values()) for place in places]
    moved = sorted(key for key in {*places[0], *places[1]} if places[0].get(key, "") != places[1].get(key, ""))
    return {
        "pods": len(places[0]),
        "onOtherNodes": len(moved),
        "pending": {"before": counts[0][""], "after": counts[1][""]},
        "pendingOnlyAfter": [key for key in moved if not places[1].get(key)],
        "placedOnlyAfter": [key for key in moved if not places[0].get(key)],
        "nodesInUse": {"before": _in_use(counts[0]), "after": _in_use(counts[1])},
        "podsPerNode": {"before": _spread(counts[0]), "after": _spread(counts[1])},
    }


def without_placements(snapshot: Snapshot, schedulers: set[str]) -> Snapshot:
    """The snapshot in which the pods that these schedulers have placed have no node. Pods that belong to their nodes
    stay there."""
    pods = [_unplaced(value, schedulers) for value in snapshot.objects.get(PODS.qualified, ())]
    return replace(snapshot, objects={**snapshot.objects, PODS.qualified: pods})


def _unplaced(value: bytes, schedulers: set[str]) -> bytes:
    pod: Document = _decode(value)
    spec, owner = pod["spec"], owner_of(pod)
    belongs = is_mirror(pod) or (owner is not None and owner["kind"] in NOT_REPLACED)
    is_over = is_finished(pod) or pod["metadata"].get("deletionTimestamp")
    if belongs or is_over or not spec.get("nodeName") or spec.get("schedulerName") not in schedulers:
        return value
    del spec["nodeName"]
    annotations = pod["metadata"].get("annotations") or {}
    pod["metadata"]["annotations"] = {key: text for key, text in annotations.items() if key not in FROM_SCHEDULER}
    pod["status"] = {"phase": "Pending", "qosClass": (pod.get("status") or {}).get("qosClass", "")}
    return _encode(pod)


async def _places(
    snapshot: Snapshot, configuration: SchedulerConfiguration, options: SimulationOptions | None
) -> Mapping[str, str]:
    """The pods that were placed again -> their nodes; empty for none."""
    pending = {
        key_of(pod)
        for value in snapshot.objects.get(PODS.qualified, ())
        if not (pod := _decode(value))["spec"].get("nodeName")
    }
    with captured_log():
        async with simulated(snapshot, configuration, options) as cluster:
            found = ((key_of(pod), pod["spec"].get("nodeName") or "") for pod in cluster.api.documents(PODS))
            return {key: node for key, node in found if key in pending}


def _in_use(counts: Counter[str]) -> int:
    return sum(1 for node in counts if node)


def _spread(counts: Counter[str]) -> dict[str, Any]:
    numbers = sorted(count for node, count in counts.items() if node)
    if not numbers:
        return {"least": 0, "median": 0, "most": 0}
    return {"least": numbers[0], "median": numbers[len(numbers) // 2], "most": numbers[-1]}
