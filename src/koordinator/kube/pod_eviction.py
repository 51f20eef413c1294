"""Removes a pod: by the Eviction API, or by a deletion that first sets a DisruptionTarget condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordinator.api.kinds import PODS
from koordinator.api.meta import ObjectMeta
from koordinator.api.timestamps import format_time
from koordinator.base.clock import Clock
from koordinator.kube.bounded_client import BoundedClient
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType

PodWriter = Client | BoundedClient


def delete_options(pod: ObjectMeta, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return DeleteOptions (meta/v1) with the pod's uid as precondition, whatever uid ``options`` have."""
    preconditions = {**(options.get("preconditions") or {}), "uid": pod.uid}
    return {**options, "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}


async def evict(client: PodWriter, pod: ObjectMeta, options: Mapping[str, Any]) -> None:
    """Evict the pod subject to its PodDisruptionBudgets; ``options`` are those of the deletion. Raises the client's
    exceptions: 429 if a budget allows no disruption."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": delete_options(pod, options),
    }
    await client.create(PODS, eviction, pod.namespace, name=pod.name, subresource="eviction")


class PodDeleter:
    """Deletes pods by their uid, so that a new pod of the same name is not deleted; ``client`` tries again what the
    server fails to do."""

    def __init__(self, client: BoundedClient, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def delete(self, pod: ObjectMeta, reason: str, message: str) -> bool:
        """Return whether the pod terminates because of this call; its DisruptionTarget has ``reason`` and ``message``.

        False if it is gone, or if another pod has its name. Raises the client's exceptions otherwise.
        """
        condition = _disruption_target(pod, reason, message, format_time(self._clock.now()))
        try:
            await self._client.patch(
                PODS, pod.name, condition, PatchType.STRATEGIC, pod.namespace, subresource="status"
            )
            await self._client.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        except ApiStatusError as error:
            if error.is_not_found or error.is_conflict:
                return False
            raise
        return True


def _disruption_target(pod: ObjectMeta, reason: str, message: str, now: str) -> dict[str, Any]:
    """Return a strategic merge patch of the one condition, with the uid as precondition."""
    condition: dict[str, Any] = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
        "lastProbeTime": None,
    }
    if pod.generation:
        condition["observedGeneration"] = pod.generation
    return {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
