"""A real control plane for koord-manager that keeps books of what managers write on nodes and their objects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from koordinator.api.timestamps import format_time
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import NAMESPACE, create, prepare
from tests.real.programs import RealPrograms

NODES = "/api/v1/nodes"
METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
BATCH_CPU = "kubernetes.io/batch-cpu"


class Cluster:
    """A real control plane with books of all that programs write on nodes and their objects."""

    def __init__(self, plane: ControlPlane, books: Path) -> None:
        self.plane = plane
        self._books = books

    def request(self, method: str, path: str, document: Any = None) -> dict[str, Any]:
        status, response = self.plane.request(method, path, document)
        assert status in (200, 201), f"{method} {path}: {response.get('message')}"
        return response

    def exists(self, path: str) -> bool:
        return self.plane.request("GET", path)[0] == 200

    def configure(self, percent: int) -> None:
        text = json.dumps({"enable": True, "cpuReclaimThresholdPercent": percent})
        document = {"metadata": {"name": "slo-controller-config"}, "data": {"colocation-config": text}}
        self.plane.request("DELETE", f"{CONFIG_MAPS}/slo-controller-config")
        create(self.plane, CONFIG_MAPS, document)

    def add_node(self, name: str) -> None:
        self.plane.request("DELETE", f"{NODES}/{name}")
        create(self.plane, NODES, {"metadata": {"name": name}})
        amounts = {"cpu": "100", "memory": "120G"}
        self.request("PATCH", f"{NODES}/{name}/status", {"status": {"capacity": amounts, "allocatable": amounts}})

    def report(self, name: str, cpu: int) -> None:
        usage = {"resources": {"cpu": str(cpu), "memory": "10G"}}
        status = {
            "updateTime": format_time(datetime.now(UTC)),
            "nodeMetric": {"nodeUsage": usage, "systemUsage": usage},
        }
        self.request("PATCH", f"{METRICS}/{name}/status", {"status": status})

    def offered(self, name: str) -> str | None:
        amount: str | None = self.request("GET", f"{NODES}/{name}")["status"]["allocatable"].get(BATCH_CPU)
        return amount

    def writes(self) -> Counter[str]:
        """Of what was changed by managers: ``verb resource name``, and how often."""
        lines = self._books.read_text().splitlines() if self._books.exists() else []
        entries = [json.loads(line) for line in lines]
        return Counter(
            f"{entry['verb']} {entry['objectRef']['resource']} {entry['objectRef'].get('name', '')}".strip()
            for entry in entries
            if entry.get("userAgent", "").startswith("koordinator-manager") and entry["responseStatus"]["code"] < 400
        )


@contextmanager
def booked_cluster(programs: RealPrograms, folder: Path) -> Iterator[Cluster]:
    policy, books = folder / "policy.yaml", folder / "audit.log"
    written = [
        {"group": "", "resources": ["nodes", "nodes/status"]},
        {"group": "slo.koordinator.sh", "resources": ["nodemetrics", "nodeslos"]},
    ]
    rules = [
        {"level": "Metadata", "verbs": ["create", "patch", "update", "delete"], "resources": written},
        {"level": "None"},
    ]
    stages = ["RequestReceived", "ResponseStarted", "Panic"]
    document = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": stages, "rules": rules}
    policy.write_text(json.dumps(document))
    arguments = (f"--audit-policy-file={policy}", f"--audit-log-path={books}", "--audit-log-mode=blocking")
    with ControlPlane(programs.kubernetes, folder / "plane", extra_arguments=arguments) as plane:
        prepare(plane)
        yield Cluster(plane, books)
