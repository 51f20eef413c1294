"""A real API server with Kubernetes' controllers and simulated nodes, for programs that are replaced while pods come
and go; watches and the audit log keep all that happens."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from koordinator.api.annotations import USAGE_THRESHOLDS
from koordinator.api.document import Document
from koordinator.api.manifests import custom_resource_definitions
from tests.real.control_plane import ControlPlane
from tests.real.migration_programs import created, items, running
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.upgrade.programs import Deployments, deployments
from tests.real.upgrade.recorder import Recorder, recording
from tests.real.upgrade.service import address_in, served, service_range

SYSTEM: Final = "koordinator-system"
PROGRAMS: Final = ("koord-manager", "koord-scheduler", "koord-descheduler")
_ORIGINAL: Final = Path(__file__).parent / "original"
_REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
_SCHEDULING: Final = "/apis/scheduling.koordinator.sh/v1alpha1"
_SIGS: Final = "/apis/scheduling.sigs.k8s.io/v1alpha1"
PODS: Final = "/api/v1/namespaces/default/pods"
RESERVATIONS: Final = f"{_SCHEDULING}/reservations"
JOBS: Final = f"{_SCHEDULING}/podmigrationjobs"
QUOTAS: Final = f"{_SIGS}/namespaces/default/elasticquotas"
GROUPS: Final = f"{_SIGS}/namespaces/default/podgroups"
PATHS: Final = {
    "pods": PODS,
    "nodes": "/api/v1/nodes",
    "leases": f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases",
    "reservations": RESERVATIONS,
    "podmigrationjobs": JOBS,
    "devices": f"{_SCHEDULING}/devices",
    "noderesourcetopologies": "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
    "elasticquotas": QUOTAS,
    "podgroups": GROUPS,
    "nodemetrics": "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
    "nodeslos": "/apis/slo.koordinator.sh/v1alpha1/nodeslos",
    "clustercolocationprofiles": "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles",
    "configmaps": f"/api/v1/namespaces/{SYSTEM}/configmaps",
    "secrets": f"/api/v1/namespaces/{SYSTEM}/secrets",
    "mutatingwebhookconfigurations": f"{_REGISTRATION}/mutatingwebhookconfigurations",
    "validatingwebhookconfigurations": f"{_REGISTRATION}/validatingwebhookconfigurations",
}
_NO_THRESHOLDS: Final = json.dumps({"usageThresholds": {"cpu": 100, "memory": 100}})
"""What pods request is all that keeps others away: a node can be filled to the last CPU."""
_NO_RESERVE: Final = {"cpu": "0", "memory": "0"}
POOLS: Final = {"roomy": (2, 16), "tight": (2, 3), "gpu": (1, 16), "pinned": (1, 8), "gang": (1, 2), "held": (1, 8)}
"""Of each how many nodes there are, of so many CPUs. The moves pool is for pods that migrate."""


@dataclass
class Cluster:
    plane: ControlPlane
    recorder: Recorder
    programs: Deployments
    audit: Path
    released: set[str] = field(default_factory=set)
    """Pods that the test deletes, or that a job of its deletes."""

    def audited(self) -> list[Document]:
        return [json.loads(line) for line in self.audit.read_text().splitlines()]

    def pod(self, name: str) -> Document:
        return self.plane.request("GET", f"{PODS}/{name}")[1]

    def node_of(self, name: str) -> str:
        return str(self.pod(name).get("spec", {}).get("nodeName", ""))

    def delete_pod(self, name: str) -> None:
        self.released.add(name)
        self.plane.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

    def holder(self, lease: str) -> str:
        found = self.plane.request("GET", f"{PATHS['leases']}/{lease}")[1]
        return str(found.get("spec", {}).get("holderIdentity", ""))


@contextmanager
def cluster(programs: RealPrograms, folder: Path, users: Sequence[str]) -> Iterator[Cluster]:
    """``users``: of programs to come, each RELEASE-PROGRAM, or RELEASE-PROGRAM-NUMBER."""
    addresses, audit = service_range(), folder / "audit.log"
    tokens = {f"token-{each}": (each, ("system:masters",)) for each in users}
    plane = ControlPlane(
        programs.kubernetes,
        folder / "cluster",
        tokens=tokens,
        extra_arguments=(f"--service-cluster-ip-range={addresses}", *_auditing(folder / "policy.json", audit)),
    )
    with ExitStack() as stack:
        stack.enter_context(plane)
        _install(plane, address_in(addresses))
        endpoints = stack.enter_context(served(address_in(addresses)))
        kubeconfigs = {user: plane.kubeconfig_for(token) for token, (user, _) in tokens.items()}
        for name, command in (
            ("controller-manager", _controllers(programs, plane, folder)),
            ("nodes", _nodes(plane, folder)),
        ):
            stack.enter_context(running(command, folder / f"{name}.log"))
        count = 2 + sum(number for number, _ in POOLS.values())
        until(lambda: len(items(plane, "/api/v1/nodes")) == count, 60, "nodes")
        recorder = stack.enter_context(recording(plane, PATHS))
        deployed = stack.enter_context(deployments(folder / "programs", kubeconfigs, endpoints))
        yield Cluster(plane, recorder, deployed, audit)
        assert not recorder.lost, recorder.lost


def _auditing(policy: Path, log: Path) -> tuple[str, ...]:
    bound = {"group": "", "resources": ["pods/binding", "pods/eviction"]}
    rules = [{"level": "Metadata", "verbs": ["create"], "resources": [bound]}, {"level": "None"}]
    stages = ["RequestReceived", "ResponseStarted", "Panic"]
    policy.write_text(
        json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": stages, "rules": rules})
    )
    return f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking"


def _install(plane: ControlPlane, address: str) -> None:
    """What the chart of the original installs, but for the programs."""
    for definition in custom_resource_definitions():
        created(plane, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    created(plane, "/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    for name, value in {"koord-prod": 9500, "koord-mid": 7500, "koord-batch": 5500, "koord-free": 3500}.items():
        created(plane, "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value})
    created(plane, PATHS["secrets"], {"metadata": {"name": "koordinator-webhook-certs"}})
    service = {"clusterIP": address, "ports": [{"port": 443, "targetPort": 9876}]}
    services = f"/api/v1/namespaces/{SYSTEM}/services"
    created(plane, services, {"metadata": {"name": "koordinator-webhook-service"}, "spec": service})
    for document in yaml.safe_load_all((_ORIGINAL / "objects.yaml").read_text()):
        created(plane, PATHS[f"{document['kind'].lower()}s"], document)
    until(lambda: all(plane.request("GET", path)[0] == 200 for path in PATHS.values()), 30, "definitions")


def _controllers(programs: RealPrograms, plane: ControlPlane, folder: Path) -> list[str]:
    return [
        str(programs.kubernetes / "kube-controller-manager"),
        f"--kubeconfig={plane.kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--service-account-private-key-file={folder / 'cluster/service-account.key'}",
    ]


def _nodes(plane: ControlPlane, folder: Path) -> list[str]:
    groups: list[dict[str, Any]] = [
        _group(name, count, cpus, **({"gpus": {"count": 2}} if name == "gpu" else {}))
        for name, (count, cpus) in {**POOLS, "moves": (2, 8)}.items()
    ]
    timing = {"reportInterval": "10s", "sampleInterval": "5s", "podStart": ["100ms", "500ms"]}
    path = folder / "nodes.yaml"
    path.write_text(yaml.safe_dump({"name": "upgrade", "nodeGroups": groups, "timing": timing}))
    command = [sys.executable, "-m", "koordinator.cluster.nodes", f"--kubeconfig={plane.kubeconfig}"]
    return [*command, f"--scenario={path}", "--koordlets=0"]


def _group(name: str, count: int, cpus: int, **more: Any) -> dict[str, Any]:
    sizes = {"cpu": str(cpus), "memory": "64Gi", "reserved": _NO_RESERVE}
    labels, annotations = {"pool": name}, {USAGE_THRESHOLDS: _NO_THRESHOLDS}
    return {"name": name, "count": count, "labels": labels, "annotations": annotations, **sizes, **more}
