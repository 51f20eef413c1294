"""Simulates volume controllers: a claim that waits only for them is bound at once."""

from __future__ import annotations

from typing import Final

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.kinds import (
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from koordinator.api.volume import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolumeClaim,
    StorageClass,
)
from koordinator.cluster.controllers.persistent_volume.provisioning import new_volume
from koordinator.cluster.verbs.target import decode, new_uid
from koordinator.simulate.in_process_api import InProcessApi

_IN_TREE: Final = "kubernetes.io/"
"""Provisioners without a CSI driver begin with it."""


class VolumeLife:
    """Call ``react`` until it returns False. A claim that was pending in the snapshot and does not change stays so:
    whatever blocks its provisioner does so here, too."""

    def __init__(self, api: InProcessApi) -> None:
        self._api = api
        self._revision = api.environment.storage.revision()

    async def react(self) -> bool:
        """Bind the claims that can be bound since the last call; False if there were none."""
        storage = self._api.environment.storage
        if storage.revision() == self._revision:
            return False
        since, self._revision = self._revision, storage.revision()
        done = False
        for kind, handle in (
            (PERSISTENT_VOLUMES, self._volume_changed),
            (PERSISTENT_VOLUME_CLAIMS, self._claim_changed),
        ):
            resource = self._api.resource(kind)
            for change in self._api.changes(kind, since):
                if change.type != "deleted":
                    done |= await handle(decode(resource, change.current))
        return done

    async def _volume_changed(self, volume: Document) -> bool:
        """The scheduler has assigned an existing volume to a claim."""
        reference = (volume.get("spec") or {}).get("claimRef") or {}
        if not reference.get("uid"):
            return False
        claim = self._api.document(PERSISTENT_VOLUME_CLAIMS, reference["name"], reference["namespace"])
        if claim is None or claim["metadata"]["uid"] != reference["uid"] or claim["spec"].get("volumeName"):
            return False
        await self._bind(claim, volume)
        return True

    async def _claim_changed(self, changed: Document) -> bool:
        metadata = changed["metadata"]
        claim = self._api.document(PERSISTENT_VOLUME_CLAIMS, metadata["name"], metadata["namespace"])
        if claim is None or claim["spec"].get("volumeName"):
            return False
        storage_class = self._api.document(STORAGE_CLASSES, claim["spec"].get("storageClassName") or "")
        if storage_class is None or storage_class.get("provisioner") in (None, "", NO_PROVISIONER):
            return False
        node = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE, "")
        if not node and storage_class.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER:
            return False
        volume = self._provisioned(claim, storage_class, node)
        await self._api.put(PERSISTENT_VOLUMES, volume)
        await self._bind(claim, volume)
        return True

    def _provisioned(self, claim: Document, storage_class: Document, node: str) -> Document:
        volume = new_volume(convert(claim, PersistentVolumeClaim), convert(storage_class, StorageClass))
        volume["metadata"]["uid"] = new_uid(self._api.environment.random)
        volume["status"] = {"phase": "Bound"}
        driver = storage_class["provisioner"]
        if driver.startswith(_IN_TREE):
            del volume["spec"]["csi"]
        if terms := self._topology(driver, node):
            expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in terms.items()]
            required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
            volume["spec"]["nodeAffinity"] = {"required": required}
        return volume

    def _topology(self, driver: str, node: str) -> dict[str, str]:
        """The topology labels, as the driver names them, of a volume that was provisioned for the node."""
        csi_node, machine = self._api.document(CSI_NODES, node), self._api.document(NODES, node)
        if csi_node is None or machine is None:
            return {}
        drivers = (csi_node.get("spec") or {}).get("drivers") or ()
        keys = next((each.get("topologyKeys") or () for each in drivers if each.get("name") == driver), ())
        labels = machine["metadata"].get("labels") or {}
        return {key: labels[key] for key in keys if key in labels}

    async def _bind(self, claim: Document, volume: Document) -> None:
        annotations = {
            **(claim["metadata"].get("annotations") or {}),
            BIND_COMPLETED: "yes",
            BOUND_BY_CONTROLLER: "yes",
        }
        claim["metadata"]["annotations"] = annotations
        claim["spec"]["volumeName"] = volume["metadata"]["name"]
        claim["status"] = {
            "phase": "Bound",
            "accessModes": claim["spec"].get("accessModes") or [],
            "capacity": dict((volume.get("spec") or {}).get("capacity") or {}),
        }
        await self._api.put(PERSISTENT_VOLUME_CLAIMS, claim)
