"""What a what-if takes on a large cluster: seconds and mebibytes, from a snapshot in memory to the outcome.

Each pod belongs to one of 200 ReplicaSets. Three questions are asked, each in a simulation of its own: where the pods
of one node would go, what becomes of ``--new`` pods that are applied, and how many more would fit, up to ``--new``.
What the cluster takes to respond to the list requests is not in it, nor what Python takes to start.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.kinds import NODES, PODS
from koordinator.scheduler.configuration import default_configuration
from koordinator.simulate.change import Change
from koordinator.simulate.fit import Fit
from koordinator.simulate.node_changes import Drain
from koordinator.simulate.object_changes import Apply
from koordinator.simulate.snapshot import Snapshot
from koordinator.simulate.snapshot_kinds import kept_form
from koordinator.simulate.what_if import what_if

_NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
_OWNERS: Final = 200


def snapshot_of(nodes: int, pods: int) -> Snapshot:
    """Nodes that are half full, with the same number of pods on each."""
    each = pods // nodes
    return Snapshot(
        "the benchmark's cluster",
        _NOW,
        _NOW,
        {
            NODES.qualified: [_kept(NODES, _node(number, each)) for number in range(nodes)],
            PODS.qualified: [_kept(PODS, _pod(number, number // each)) for number in range(nodes * each)],
        },
    )


def _kept(kind: Any, document: Document) -> bytes:
    kept = kept_form(kind, document)
    assert kept is not None
    return kept


def _node(number: int, pods: int) -> Document:
    name = f"node-{number:05}"
    amounts = {"cpu": str(pods), "memory": f"{2 * pods}Gi", "pods": "250"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    metadata = {"name": name, "uid": f"uid-of-{name}", "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": {"capacity": amounts, "allocatable": amounts}}


def _pod(number: int, node: int) -> Document:
    owner = f"web-{number % _OWNERS}"
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": owner,
        "uid": f"uid-of-{owner}",
        "controller": True,
    }
    document = _new_pod(f"{owner}-{number:06}")
    document["metadata"] |= {"uid": f"uid-{number}", "labels": {"app": owner}, "ownerReferences": [reference]}
    document["spec"] |= {"nodeName": f"node-{node:05}", "priority": 0}
    document["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return document


def _new_pod(name: str) -> Document:
    requests = {"cpu": "500m", "memory": "1Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "image": "example.com/main:1", "resources": {"requests": requests}}],
        },
    }


def _seconds(snapshot: Snapshot, change: Change) -> tuple[float, dict[str, Any]]:
    gc.collect()
    started = time.perf_counter()
    outcome = asyncio.run(what_if(snapshot, [change], default_configuration()))
    return time.perf_counter() - started, outcome


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000, help="on nodes (default: %(default)d)")
    parser.add_argument("--new", type=int, default=500, help="pods that are applied (default: %(default)d)")
    options = parser.parse_args(arguments)
    if not 0 < options.nodes <= options.pods:
        parser.error("--pods: there is at least one on each node")
    snapshot = snapshot_of(options.nodes, options.pods)
    drain, drained = _seconds(snapshot, Drain(["node-00000"]))
    apply, applied = _seconds(snapshot, Apply([_new_pod("new")], replicas=options.new))
    fit, fitting = _seconds(snapshot, Fit(_new_pod("new"), at_most=options.new))
    report = {
        "benchmark": "what_if",
        "nodes": options.nodes,
        "pods": snapshot.count(PODS.qualified),
        "seconds": {"drain": round(drain, 2), "apply": round(apply, 2), "fit": round(fit, 2)},
        "moved": len(drained["placed"]),
        "placed": len(applied["placed"]),
        "fitting": fitting["fit"]["replicas"],
        "peak_mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
