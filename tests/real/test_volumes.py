"""Claims that wait for their first consumer, with a real volume controller: pod and volume end up on the same node."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from koordinator.api.kinds import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from koordinator.api.volume import BIND_COMPLETED, SELECTED_NODE, PersistentVolumeClaim
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.interface import PatchType
from koordinator.scheduler.cycle.failure_report import scheduled_condition
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import write_configuration

Story = Callable[[KubeClient], Awaitable[None]]


@contextmanager
def program(folder: Path, *command: str) -> Iterator[None]:
    """A program that writes its log into ``folder``."""
    with (folder / f"{Path(command[0]).name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@contextmanager
def programs(plane: ControlPlane, real: RealPrograms, folder: Path) -> Iterator[None]:
    """Our scheduler and the volume controller of the real controller manager."""
    configuration = write_configuration(folder / "scheduler.yaml")
    kubeconfig = f"--kubeconfig={plane.kubeconfig}"
    with ExitStack() as stack:
        arguments = [f"--config={configuration}", kubeconfig, "--port=0"]
        stack.enter_context(program(folder, sys.executable, "-m", "koordinator.scheduler", *arguments))
        controllers = ["--controllers=persistentvolume-binder-controller", "--pvclaimbinder-sync-period=1s"]
        manager = str(real.kubernetes / "kube-controller-manager")
        stack.enter_context(
            program(folder, manager, kubeconfig, *controllers, "--leader-elect=false", "--secure-port=0")
        )
        yield


@asynccontextmanager
async def connected(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig)))
    try:
        yield client
    finally:
        await client.close()


async def populate(client: KubeClient, provisioner: str) -> None:
    """Two nodes, and a class whose claims wait for a pod."""
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"capacity": resources, "allocatable": resources}
    for name in ("node-a", "node-b"):
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        await client.create(NODES, {"metadata": metadata, "status": status})
    mode = "WaitForFirstConsumer"
    await client.create(
        STORAGE_CLASSES, {"metadata": {"name": "wait"}, "provisioner": provisioner, "volumeBindingMode": mode}
    )


def volume(name: str, node: str, size: str, **spec: Any) -> dict[str, Any]:
    """A volume on a node's own disk."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "wait",
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            **spec,
        },
    }


async def claim_and_pod(client: KubeClient, name: str) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "wait",
        "resources": {"requests": {"storage": "2Gi"}},
    }
    await client.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": name}, "spec": spec}, "default")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    containers = [{"name": "main", "image": "pause"}]
    pod = {"schedulerName": "koord-scheduler", "containers": containers, "volumes": volumes}
    await client.create(PODS, {"metadata": {"name": name}, "spec": pod}, "default")


async def node_of(client: KubeClient, name: str) -> str:
    """Where the pod is, once it is anywhere."""
    while not (found := (await client.get(PODS, name, "default")).spec.node_name):
        await asyncio.sleep(0.1)
    return found


async def claim_of(client: KubeClient, name: str) -> PersistentVolumeClaim:
    return await client.get(PERSISTENT_VOLUME_CLAIMS, name, "default")


async def selected_node(client: KubeClient, name: str) -> str:
    """The node that the claim's volume shall be made for, once it is known."""
    while (found := (await claim_of(client, name)).metadata.annotations.get(SELECTED_NODE)) is None:
        await asyncio.sleep(0.1)
    return found


def play(plane: ControlPlane, real: RealPrograms, folder: Path, provisioner: str, story: Story) -> None:
    async def run() -> None:
        async with connected(plane) as client:
            await populate(client, provisioner)
            with programs(plane, real, folder):
                async with asyncio.timeout(60):
                    await story(client)

    asyncio.run(run())


def test_local_volume_is_bound_where_the_pod_goes(
    plane: ControlPlane, real_programs: RealPrograms, tmp_path: Path
) -> None:
    async def story(client: KubeClient) -> None:
        await client.create(PERSISTENT_VOLUMES, volume("small", "node-a", "1Gi"))
        await client.create(PERSISTENT_VOLUMES, volume("large", "node-b", "3Gi"))
        await claim_and_pod(client, "data")
        assert await node_of(client, "data") == "node-b"
        claim = await claim_of(client, "data")
        assert claim.spec.volume_name == "large"
        assert BIND_COMPLETED in claim.metadata.annotations
        bound = await client.get(PERSISTENT_VOLUMES, "large")
        assert bound.spec.claim_ref is not None
        assert bound.spec.claim_ref.uid == claim.metadata.uid

    play(plane, real_programs, tmp_path, "kubernetes.io/no-provisioner", story)


def test_pods_share_out_local_volumes(plane: ControlPlane, real_programs: RealPrograms, tmp_path: Path) -> None:
    async def story(client: KubeClient) -> None:
        names = [f"data-{number}" for number in range(4)]
        for number, name in enumerate(names):
            node = f"node-{'ab'[number % 2]}"
            await client.create(PERSISTENT_VOLUMES, volume(f"disk-{number}", node, f"{number + 2}Gi"))
            await claim_and_pod(client, name)
        nodes = sorted([await node_of(client, name) for name in names])
        assert nodes == ["node-a", "node-a", "node-b", "node-b"]
        assert len({(await claim_of(client, name)).spec.volume_name for name in names}) == 4

    play(plane, real_programs, tmp_path, "kubernetes.io/no-provisioner", story)


def test_pod_waits_for_a_volume_and_says_so(plane: ControlPlane, real_programs: RealPrograms, tmp_path: Path) -> None:
    async def story(client: KubeClient) -> None:
        await claim_and_pod(client, "data")
        while (condition := scheduled_condition(await client.get(PODS, "data", "default"))) is None:
            await asyncio.sleep(0.1)
        assert "2 node(s) didn't find available persistent volumes to bind" in condition.message
        await client.create(PERSISTENT_VOLUMES, volume("late", "node-a", "2Gi"))
        assert await node_of(client, "data") == "node-a"

    play(plane, real_programs, tmp_path, "kubernetes.io/no-provisioner", story)


def test_volume_is_made_for_the_node_of_the_pod(
    plane: ControlPlane, real_programs: RealPrograms, tmp_path: Path
) -> None:
    """The test is the provisioner: it refuses once, then makes the volume."""

    async def story(client: KubeClient) -> None:
        await claim_and_pod(client, "data")
        await selected_node(client, "data")
        refused = {"metadata": {"annotations": {SELECTED_NODE: None}}}
        await client.patch(PERSISTENT_VOLUME_CLAIMS, "data", refused, PatchType.MERGE, "default")
        node = await selected_node(client, "data")
        claim = await claim_of(client, "data")
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": "default",
            "name": "data",
            "uid": claim.metadata.uid,
        }
        await client.create(PERSISTENT_VOLUMES, volume("made", node, "2Gi", claimRef=reference))
        assert await node_of(client, "data") == node
        assert (await claim_of(client, "data")).spec.volume_name == "made"

    play(plane, real_programs, tmp_path, "csi.example.com", story)
