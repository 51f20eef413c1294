"""Nodes that leave service, claims for volumes and accounts on ``koord up``, as a person handles them with kubectl."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running import Kubectl, koord_up

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed here")
_WAIT = "--timeout=60s"


def _manifest(folder: Path, kind: str, name: str, spec: dict[str, Any], api_version: str = "apps/v1") -> str:
    document = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    path = folder / f"{kind}.json"
    path.write_text(json.dumps(document))
    return str(path)


async def _nodes_of_pods(kubectl: Kubectl) -> set[str]:
    return set((await kubectl("get", "pods", "-o=jsonpath={.items[*].spec.nodeName}")).split())


async def _taints(kubectl: Kubectl, node: str) -> str:
    return await kubectl("get", "node", node, "-o=jsonpath={.spec.taints[*].key}")


def test_a_node_is_cordoned_drained_and_taken_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with koord_up(tmp_path, "--nodes=2", "--koordlets=0") as up:
            kubectl = Kubectl(up)
            await kubectl("create", "deployment", "web", "--image=web:1", "--replicas=4")
            await kubectl("rollout", "status", "deployment/web", _WAIT)
            first, second = sorted((await kubectl("get", "nodes", "-o=jsonpath={.items[*].metadata.name}")).split())
            await kubectl("drain", first, "--ignore-daemonsets", _WAIT)
            unschedulable = "--for=jsonpath={.spec.taints[0].key}=node.kubernetes.io/unschedulable"
            await kubectl("wait", unschedulable, f"node/{first}", _WAIT)
            await kubectl("rollout", "status", "deployment/web", _WAIT)
            assert await _nodes_of_pods(kubectl) == {second}
            await kubectl("uncordon", first)
            await kubectl("taint", "nodes", second, "maintenance=now:NoExecute")
            await kubectl("wait", "--for=delete", "pod", f"--field-selector=spec.nodeName={second}", "--all", _WAIT)
            await kubectl("rollout", "status", "deployment/web", _WAIT)
            assert await _nodes_of_pods(kubectl) == {first}
            assert "Marking for deletion Pod default/web-" in await kubectl("get", "events")
            assert await _taints(kubectl, first) == ""

    asyncio.run(scenario())


def test_a_stateful_set_gets_volumes_that_grow(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with koord_up(tmp_path, "--nodes=2", "--koordlets=0") as up:
            kubectl = Kubectl(up)
            claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            container = {"name": "main", "image": "db", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
            spec = {
                "serviceName": "db",
                "replicas": 2,
                "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [container]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
            }
            output = await kubectl("apply", "-f", _manifest(tmp_path, "StatefulSet", "db", spec))
            assert "no controller" not in output
            await kubectl("rollout", "status", "statefulset/db", _WAIT)
            phases = await kubectl("get", "pvc", "-o=jsonpath={.items[*].status.phase}")
            assert phases.split() == ["Bound", "Bound"]
            larger = '{"spec": {"resources": {"requests": {"storage": "3Gi"}}}}'
            await kubectl("patch", "pvc", "data-db-0", "--type=merge", f"--patch={larger}")
            await kubectl("wait", "--for=jsonpath={.status.capacity.storage}=3Gi", "pvc/data-db-0", _WAIT)
            events = await kubectl("get", "events", "--field-selector=involvedObject.name=data-db-0")
            assert "waiting for first consumer to be created before binding" in events
            await kubectl("delete", "statefulset", "db")
            await kubectl("delete", "pvc", "--all", _WAIT)
            await kubectl("wait", "--for=delete", "pv", "--all", _WAIT)

    asyncio.run(scenario())


def test_a_claim_waits_for_a_volume_that_fits(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with koord_up(tmp_path, "--nodes=1", "--koordlets=0") as up:
            kubectl = Kubectl(up)
            claim = {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "2Gi"}},
                "storageClassName": "",
            }
            await kubectl("apply", "-f", _manifest(tmp_path, "PersistentVolumeClaim", "data", claim, "v1"))
            await kubectl("wait", "--for=jsonpath={.status.phase}=Pending", "pvc/data", _WAIT)
            volume = {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "5Gi"},
                "hostPath": {"path": "/data"},
                "storageClassName": "",
            }
            await kubectl("apply", "-f", _manifest(tmp_path, "PersistentVolume", "disk", volume, "v1"))
            await kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "pvc/data", _WAIT)
            await kubectl("delete", "pv", "disk", "--wait=false")
            assert "Terminating" in await kubectl("get", "pv", "disk")
            await kubectl("delete", "pvc", "data", _WAIT)
            await kubectl("wait", "--for=delete", "pv/disk", _WAIT)

    asyncio.run(scenario())


def test_a_new_namespace_has_an_account_for_its_pods(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with koord_up(tmp_path, "--nodes=1", "--koordlets=0") as up:
            kubectl = Kubectl(up)
            await kubectl("create", "namespace", "team")
            await kubectl("run", "web", "--image=web", "--namespace=team")
            await kubectl("wait", "--for=condition=Ready", "pod/web", "--namespace=team", _WAIT)
            account = "-o=jsonpath={.spec.serviceAccountName} {.spec.containers[0].volumeMounts[0].mountPath}"
            found = await kubectl("get", "pod", "web", "--namespace=team", account)
            assert found == "default /var/run/secrets/kubernetes.io/serviceaccount"
            certificate = "-o=jsonpath={.data.ca\\.crt}"
            published = await kubectl("get", "configmap", "kube-root-ca.crt", "--namespace=team", certificate)
            assert published == (up.data / "api" / "pki" / "ca.crt").read_text()
            await kubectl("delete", "namespace", "team", _WAIT)

    asyncio.run(scenario())
