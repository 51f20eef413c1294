"""Claims and volumes over an API server in memory, as the controllers treat them."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.kinds import EVENTS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from koordinator.api.volume import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE
from koordinator.cluster.controllers.persistent_volume.controller import VolumeBinderController
from koordinator.cluster.controllers.persistent_volume.ephemeral import EphemeralVolumeController
from koordinator.cluster.controllers.persistent_volume.protection import (
    ClaimProtectionController,
    VolumeProtectionController,
)
from koordinator.cluster.controllers.persistent_volume.provisioner import SimulatedProvisionerController
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from tests.cluster.controllers.running_controllers import Cluster, asynchronous, running_controllers
from tests.waiting import wait_for

Document = dict[str, Any]
_ALL = (
    VolumeBinderController,
    ClaimProtectionController,
    VolumeProtectionController,
    SimulatedProvisionerController,
)


async def add_claim(cluster: Cluster, name: str, size: str = "1Gi", **spec: Any) -> None:
    given = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    await cluster.create(PERSISTENT_VOLUME_CLAIMS, name, given)


async def add_volume(cluster: Cluster, name: str, size: str = "1Gi", **spec: Any) -> None:
    given = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}, **spec}
    await cluster.client.create(PERSISTENT_VOLUMES, {"metadata": {"name": name}, "spec": given})


async def phase(cluster: Cluster, name: str, wanted: str) -> Document:
    """The claim, as soon as it is in this phase."""
    return await cluster.until(
        PERSISTENT_VOLUME_CLAIMS, name, lambda claim: bool(claim["status"].get("phase") == wanted)
    )


async def volume_phase(cluster: Cluster, name: str, wanted: str) -> Document:
    await wait_for(lambda: _volume(cluster, name)["status"].get("phase") == wanted)
    return _volume(cluster, name)


def _volume(cluster: Cluster, name: str) -> Document:
    return cluster.api.document(PERSISTENT_VOLUMES, name)


async def _bind_and_release() -> None:
    async with running_controllers(*_ALL) as cluster:
        await add_volume(cluster, "big", "9Gi", storageClassName="disk")
        await add_volume(cluster, "small", "2Gi", storageClassName="disk")
        for name in ("big", "small"):
            await volume_phase(cluster, name, "Available")
        await add_claim(cluster, "data", storageClassName="disk")
        claim = await phase(cluster, "data", "Bound")
        assert claim["spec"]["volumeName"] == "small"
        assert claim["status"]["capacity"] == {"storage": "2Gi"}
        assert claim["metadata"]["annotations"] == {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
        volume = await volume_phase(cluster, "small", "Bound")
        assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
        await wait_for(lambda: _volume(cluster, "small")["metadata"].get("finalizers") is not None)
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", "default")
        await volume_phase(cluster, "small", "Released")
        # A volume that is retained waits for a person.
        await add_claim(cluster, "again", "2Gi", storageClassName="disk")
        assert (await phase(cluster, "again", "Bound"))["spec"]["volumeName"] == "big"


def test_a_claim_is_bound_to_the_smallest_volume_and_releases_it() -> None:
    asynchronous(_bind_and_release)()


async def _many() -> None:
    async with running_controllers(*_ALL) as cluster:
        for index in range(8):
            await add_claim(cluster, f"c{index}", storageClassName="disk")
            await add_volume(cluster, f"v{index}", storageClassName="disk")
        claims = [await phase(cluster, f"c{index}", "Bound") for index in range(8)]
        assert {claim["spec"]["volumeName"] for claim in claims} == {f"v{index}" for index in range(8)}


def test_no_two_claims_get_the_same_volume() -> None:
    asynchronous(_many)()


async def _provision() -> None:
    async with running_controllers(*_ALL) as cluster:
        await wait_for(lambda: cluster.api.names(STORAGE_CLASSES) == ["simulated"])
        await add_claim(cluster, "data")
        event = await cluster.event("WaitForFirstConsumer")
        assert event["message"] == "waiting for first consumer to be created before binding"
        claim = await phase(cluster, "data", "Pending")
        assert claim["spec"]["storageClassName"] == "simulated"
        selected = {"metadata": {"annotations": {SELECTED_NODE: "n"}}}
        await cluster.patch(PERSISTENT_VOLUME_CLAIMS, "data", selected)
        name = (await phase(cluster, "data", "Bound"))["spec"]["volumeName"]
        assert name == f"pvc-{claim['metadata']['uid']}"
        larger = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
        await cluster.patch(PERSISTENT_VOLUME_CLAIMS, "data", larger)
        await cluster.until(
            PERSISTENT_VOLUME_CLAIMS, "data", lambda claim: bool(claim["status"]["capacity"]["storage"] == "3Gi")
        )
        assert _volume(cluster, name)["spec"]["capacity"] == {"storage": "3Gi"}
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", "default")
        await wait_for(lambda: cluster.api.names(PERSISTENT_VOLUMES) == [])


def test_a_simulated_volume_is_made_grows_and_goes_with_its_claim() -> None:
    asynchronous(_provision)()


async def _no_growth() -> None:
    async with running_controllers(*_ALL) as cluster:
        await add_volume(cluster, "v", storageClassName="")
        await add_claim(cluster, "data", storageClassName="", volumeName="v")
        await phase(cluster, "data", "Bound")
        larger = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
        with pytest.raises(ApiStatusError, match="only dynamically provisioned pvc can be resized"):
            await cluster.patch(PERSISTENT_VOLUME_CLAIMS, "data", larger)


def test_a_claim_of_a_class_that_does_not_allow_it_does_not_grow() -> None:
    asynchronous(_no_growth)()


async def _protect() -> None:
    async with running_controllers(*_ALL) as cluster:
        await add_claim(cluster, "data", storageClassName="")
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "volumes": volumes}
        await cluster.create(PODS, "user", spec)
        await cluster.until(
            PERSISTENT_VOLUME_CLAIMS, "data", lambda claim: claim["metadata"].get("finalizers") is not None
        )
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", "default")
        claim = cluster.api.document(PERSISTENT_VOLUME_CLAIMS, "data", "default")
        assert "deletionTimestamp" in claim["metadata"]
        await cluster.client.delete(PODS, "user", "default", grace_period_seconds=0)
        await wait_for(lambda: cluster.api.names(PERSISTENT_VOLUME_CLAIMS) == [])


def test_a_claim_stays_as_long_as_a_pod_uses_it() -> None:
    asynchronous(_protect)()


async def _ephemeral() -> None:
    async with running_controllers(EphemeralVolumeController) as cluster:
        await add_claim(cluster, "second-scratch", storageClassName="")
        wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": wanted}
        volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
        for name in ("first", "second"):
            spec = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}
            await cluster.create(PODS, name, spec)
        claim = await cluster.until(PERSISTENT_VOLUME_CLAIMS, "first-scratch", lambda _: True)
        (owner,) = claim["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "first", True)
        assert claim["metadata"]["labels"] == {"a": "b"}
        event = await cluster.event("FailedBinding")
        text = "ephemeral volume scratch: PVC default/second-scratch was not created for pod default/second"
        assert event["message"] == text


def test_the_claim_of_an_ephemeral_volume_belongs_to_its_pod() -> None:
    asynchronous(_ephemeral)()


async def _lose() -> None:
    async with running_controllers(*_ALL) as cluster:
        await add_volume(cluster, "v", storageClassName="")
        await add_claim(cluster, "data", storageClassName="")
        await phase(cluster, "data", "Bound")
        await cluster.client.delete(PERSISTENT_VOLUMES, "v")
        # Somebody takes the protection away by force.
        nothing = {"metadata": {"finalizers": None}}
        await cluster.client.patch(PERSISTENT_VOLUMES, "v", nothing, PatchType.MERGE)
        await phase(cluster, "data", "Lost")
        await cluster.event("ClaimLost")
        assert sum(event["reason"] == "ClaimLost" for event in cluster.api.all(EVENTS)) == 1


def test_a_claim_without_its_volume_is_lost() -> None:
    asynchronous(_lose)()
