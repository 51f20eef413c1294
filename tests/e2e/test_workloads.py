"""Workloads, Services, volumes and nodes on ``koord up``, with the commands that a person types.

One cluster is shared by all of them, since a whole ``koord up`` costs more than what each test does on it: a test
leaves no object behind.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.running import Kubectl, Up, koord_up

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed here")
_PROGRAMS = "--only=apiserver,nodes,scheduler,controllers"
_WAIT = "--timeout=60s"
_IMAGE = "-o=jsonpath={.spec.template.spec.containers[0].image}"
_ROLLED_OUT = 'deployment "web" successfully rolled out'
Scenario = Callable[[Kubectl], Coroutine[Any, Any, None]]
Play = Callable[[Scenario], None]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Up]]:
    with asyncio.Runner() as runner:
        up = koord_up(tmp_path_factory.mktemp("up"), _PROGRAMS, "--nodes=2", "--koordlets=0")
        yield runner, runner.run(up.__aenter__())
        runner.run(up.__aexit__(None, None, None))


@pytest.fixture
def play(running: tuple[asyncio.Runner, Up]) -> Play:
    """Plays a scenario on the shared cluster."""
    runner, up = running
    return lambda scenario: runner.run(scenario(Kubectl(up)))


def _manifest(folder: Path, kind: str, name: str, spec: dict[str, Any], api_version: str = "apps/v1") -> str:
    """A file with an object; returns its path."""
    document = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    path = folder / f"{kind}.json"
    path.write_text(json.dumps(document))
    return str(path)


# Deployments.


def test_a_deployment_is_rolled_out_changed_undone_scaled_and_deleted(play: Play) -> None:
    async def scenario(kubectl: Kubectl) -> None:
        created = await kubectl("create", "deployment", "web", "--image=nginx:1", "--replicas=3")
        assert created == "deployment.apps/web created\n"
        await _rolled_out(kubectl)
        await kubectl("set", "image", "deployment/web", "nginx=nginx:2")
        await _rolled_out(kubectl)
        await kubectl("rollout", "undo", "deployment/web")
        await _rolled_out(kubectl)
        assert await kubectl("get", "deployment", "web", _IMAGE) == "nginx:1"
        history = await kubectl("rollout", "history", "deployment/web")
        assert [line.split()[0] for line in history.strip().splitlines()[2:]] == ["2", "3"]
        await kubectl("scale", "deployment", "web", "--replicas=5")
        await _rolled_out(kubectl)
        await kubectl("wait", "deployment/web", "--for=condition=Available", _WAIT)
        assert (await kubectl.status("deployment/web"))["availableReplicas"] == 5
        await kubectl("delete", "deployment", "web", "--cascade=foreground", _WAIT)
        assert await kubectl("get", "replicasets,deployments", "-o=name") == ""

    play(scenario)


async def _rolled_out(kubectl: Kubectl) -> None:
    assert (await kubectl("rollout", "status", "deployment/web", _WAIT)).strip().endswith(_ROLLED_OUT)


# DaemonSets and StatefulSets.


def _web(folder: Path, kind: str, **spec: object) -> str:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
    return _manifest(folder, kind, "web", {"selector": {"matchLabels": labels}, "template": template, **spec})


async def _roll_out_and_back(kubectl: Kubectl, workload: str) -> None:
    await kubectl("rollout", "status", workload, _WAIT)
    await kubectl("set", "image", workload, "main=web:2")
    await kubectl("rollout", "status", workload, _WAIT)
    await kubectl("rollout", "undo", workload)
    await kubectl("rollout", "status", workload, _WAIT)
    images = await kubectl("get", "pods", "-o=jsonpath={.items[*].spec.containers[0].image}")
    assert set(images.split()) == {"web:1"}
    history = await kubectl("rollout", "history", workload)
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["2", "3"]


def test_a_daemon_set_is_rolled_out_and_back(tmp_path: Path, play: Play) -> None:
    async def scenario(kubectl: Kubectl) -> None:
        strategy = {"rollingUpdate": {"maxUnavailable": "100%"}}
        output = await kubectl("apply", "-f", _web(tmp_path, "DaemonSet", updateStrategy=strategy))
        assert "no controller" not in output
        await _roll_out_and_back(kubectl, "daemonset/web")
        assert (await kubectl.status("daemonset/web"))["numberAvailable"] == 2
        await kubectl("delete", "daemonset", "web", "--cascade=foreground", _WAIT)
        assert await kubectl("get", "pods,controllerrevisions", "-o=name") == ""

    play(scenario)


def test_a_stateful_set_is_rolled_out_and_back_and_scaled(tmp_path: Path, play: Play) -> None:
    async def scenario(kubectl: Kubectl) -> None:
        await kubectl("apply", "-f", _web(tmp_path, "StatefulSet", replicas=2, serviceName="web"))
        await _roll_out_and_back(kubectl, "statefulset/web")
        await kubectl("scale", "statefulset", "web", "--replicas=1")
        await kubectl("wait", "--for=delete", "pod/web-1", _WAIT)
        assert (await kubectl("get", "pods", "-o=name")).split() == ["pod/web-0"]
        await kubectl("delete", "statefulset", "web")
        await kubectl("wait", "--for=delete", "pod/web-0", _WAIT)

    play(scenario)


# Jobs.


def test_jobs_end_and_cron_jobs_start_them(play: Play) -> None:
    async def scenario(kubectl: Kubectl) -> None:
        await _complete(kubectl)
        await _fail(kubectl)
        await _suspend(kubectl)
        await _start_from_a_cron_job(kubectl)

    play(scenario)


async def _complete(kubectl: Kubectl) -> None:
    output = await kubectl("create", "job", "hello", "--image=busybox", "--", "echo", "hi")
    assert "no controller" not in output
    await kubectl("wait", "--for=condition=complete", "job/hello", _WAIT)
    assert (await kubectl.status("job/hello"))["succeeded"] == 1
    await kubectl("delete", "job", "hello")
    await kubectl("wait", "--for=delete", "pod", "-l=job-name=hello", _WAIT)


async def _fail(kubectl: Kubectl) -> None:
    await kubectl("create", "job", "bad", "--image=busybox", "--", "false")
    await kubectl("patch", "job", "bad", "-p", '{"spec":{"backoffLimit":0}}')
    await kubectl("wait", "--for=condition=failed", "job/bad", _WAIT)
    reasons = {each["reason"] for each in (await kubectl.status("job/bad"))["conditions"]}
    assert reasons == {"BackoffLimitExceeded"}
    await kubectl("delete", "job", "bad", "--cascade=foreground", _WAIT)


async def _suspend(kubectl: Kubectl) -> None:
    await kubectl("create", "job", "long", "--image=busybox", "--", "sleep", "600")
    await kubectl("wait", "--for=jsonpath={.status.ready}=1", "job/long", _WAIT)
    await kubectl("patch", "job", "long", "-p", '{"spec":{"suspend":true}}')
    await kubectl("wait", "--for=condition=suspended", "job/long", _WAIT)
    await kubectl("wait", "--for=delete", "pod", "-l=job-name=long", _WAIT)
    await kubectl("delete", "job", "long")


async def _start_from_a_cron_job(kubectl: Kubectl) -> None:
    await kubectl("create", "cronjob", "tick", "--image=busybox", "--schedule=@every 1s", "--", "date")
    await kubectl("wait", "--for=jsonpath={.status.lastSuccessfulTime}", "cronjob/tick", _WAIT)
    await kubectl("create", "job", "by-hand", "--from=cronjob/tick")
    await kubectl("wait", "--for=condition=complete", "job/by-hand", _WAIT)
    await kubectl("delete", "cronjob", "tick")
    await kubectl("wait", "--for=delete", "job/by-hand", _WAIT)


# Services and autoscalers.


def test_a_deployment_is_exposed_and_autoscaled(play: Play) -> None:
    async def scenario(kubectl: Kubectl) -> None:
        await kubectl("create", "deployment", "web", "--image=nginx", "--port=8080", "--replicas=2")
        await kubectl("rollout", "status", "deployment/web", _WAIT)
        await _expose(kubectl)
        await _autoscale(kubectl)
        await _follow(kubectl)
        await kubectl("delete", "deployment/web", "hpa/web", "--cascade=foreground", _WAIT)

    play(scenario)


async def _expose(kubectl: Kubectl) -> None:
    output = await kubectl("expose", "deployment", "web", "--port=80", "--target-port=8080", "--type=NodePort")
    assert output.strip() == "service/web exposed"
    kind, address, _, ports, _ = (await kubectl("get", "service", "web", "--no-headers")).split()[1:]
    assert (kind, address.split(".")[0]) == ("NodePort", "10")
    assert ports.startswith("80:3")
    assert len(await _addresses(kubectl, 2)) == 2
    shown = (await kubectl("describe", "service", "web")).splitlines()
    (line,) = [line for line in shown if line.startswith("Endpoints:")]
    assert line.count(":8080") == 2


async def _autoscale(kubectl: Kubectl) -> None:
    output = await kubectl("autoscale", "deployment", "web", "--min=4", "--max=6", "--cpu-percent=50")
    assert output.strip() == "horizontalpodautoscaler.autoscaling/web autoscaled"
    await kubectl("wait", "--for=jsonpath={.spec.replicas}=4", "deployment/web", _WAIT)
    await kubectl("wait", "--for=jsonpath={.status.desiredReplicas}=4", "hpa/web", _WAIT)
    name, reference, _, _, least, most, _, _ = (await kubectl("get", "hpa", "web", "--no-headers")).split()
    assert (name, reference, least, most) == ("web", "Deployment/web", "4", "6")
    described = await kubectl("describe", "hpa", "web")
    assert "New size: 4; reason: Current number of replicas below Spec.MinReplicas" in described


async def _follow(kubectl: Kubectl) -> None:
    """The lists go with the pods, and with the Service."""
    await kubectl("rollout", "status", "deployment/web", _WAIT)
    assert len(await _addresses(kubectl, 4)) == 4
    await kubectl("delete", "service", "web")
    await kubectl("wait", "--for=delete", "endpointslice", "-l", "kubernetes.io/service-name=web", _WAIT)
    await kubectl("wait", "--for=delete", "endpoints/web", _WAIT)


async def _addresses(kubectl: Kubectl, count: int) -> set[str]:
    """Of the ready endpoints of the one slice, as soon as there are so many."""
    selector = ("-l", "kubernetes.io/service-name=web")
    is_ready = f"--for=jsonpath={{.endpoints[{count - 1}].conditions.ready}}=true"
    await kubectl("wait", is_ready, "endpointslice", *selector, _WAIT)
    path = "-o=jsonpath={.items[0].endpoints[?(@.conditions.ready==true)].addresses[0]}"
    return set((await kubectl("get", "endpointslice", *selector, path)).split())


# Nodes, volumes, namespaces.


async def _nodes_of_pods(kubectl: Kubectl) -> set[str]:
    return set((await kubectl("get", "pods", "-o=jsonpath={.items[*].spec.nodeName}")).split())


async def _taints(kubectl: Kubectl, node: str) -> str:
    return await kubectl("get", "node", node, "-o=jsonpath={.spec.taints[*].key}")


def test_a_node_is_cordoned_drained_and_taken_back(play: Play) -> None:
    async def scenario(kubectl: Kubectl) -> None:
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
        await kubectl("taint", "nodes", second, "maintenance-")
        await kubectl("delete", "deployment", "web", "--cascade=foreground", _WAIT)

    play(scenario)


def test_a_stateful_set_gets_volumes_that_grow(tmp_path: Path, play: Play) -> None:
    async def scenario(kubectl: Kubectl) -> None:
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
        # The controller may have seen the pod before the claim, or only the claim.
        assert "waiting for first consumer to be created before binding" in events or "WaitForPodScheduled" in events
        await kubectl("delete", "statefulset", "db")
        await kubectl("delete", "pvc", "--all", _WAIT)
        await kubectl("wait", "--for=delete", "pv", "--all", _WAIT)

    play(scenario)


def test_a_claim_waits_for_a_volume_that_fits(tmp_path: Path, play: Play) -> None:
    async def scenario(kubectl: Kubectl) -> None:
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

    play(scenario)


def test_a_new_namespace_has_an_account_for_its_pods(running: tuple[asyncio.Runner, Up], play: Play) -> None:
    async def scenario(kubectl: Kubectl) -> None:
        await kubectl("create", "namespace", "team")
        await kubectl("run", "web", "--image=web", "--namespace=team")
        await kubectl("wait", "--for=condition=Ready", "pod/web", "--namespace=team", _WAIT)
        account = "-o=jsonpath={.spec.serviceAccountName} {.spec.containers[0].volumeMounts[0].mountPath}"
        found = await kubectl("get", "pod", "web", "--namespace=team", account)
        assert found == "default /var/run/secrets/kubernetes.io/serviceaccount"
        certificate = "-o=jsonpath={.data.ca\\.crt}"
        published = await kubectl("get", "configmap", "kube-root-ca.crt", "--namespace=team", certificate)
        assert published == (running[1].data / "api" / "pki" / "ca.crt").read_text()
        await kubectl("delete", "namespace", "team", _WAIT)

    play(scenario)
