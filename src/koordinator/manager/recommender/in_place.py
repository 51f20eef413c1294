"""The requests by which a pod is resized in place, and the record of it in an annotation of the pod.

What the pod had before is written to it first, and then the pod is resized: whoever looks at it next can undo a resize
that is half done.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from koordinator.api.codec import encode, to_document
from koordinator.api.recommendation import APPLIED, BY_RESIZE, AppliedRecommendation, ContainerChange
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType
from koordinator.manager.recommender.observed_pods import OBSERVED_PODS, ObservedPod
from koordinator.manager.recommender.resize_decision import Resize, amounts_after, record_of


async def resize_in_place(client: Client, resize: Resize, recommendation: str, now: datetime) -> None:
    """Write the record and resize the pod for the Recommendation of that name. Raises KubeError; a resize that the API
    server refuses leaves no record, and one that may have been done all the same does."""
    pod, before = resize.pod, record_of(resize.pod, now)
    restarts = {name: count + (name in resize.restarted) for name, count in pod.restarts.items()}
    record = AppliedRecommendation(
        recommendation=recommendation,
        by=BY_RESIZE,
        at=now.replace(microsecond=0),
        containers=dict(resize.changes),
        restarts={name: count for name, count in restarts.items() if name in resize.changes},
        undos=before.undos if before is not None and before.undone else 0,
    )
    await write_record(client, pod, record)
    try:
        await patch_resources(client, pod, resize.changes)
    except ApiStatusError as error:
        if error.is_server_error:
            raise
        await _write_annotation(client, pod, pod.metadata.annotations.get(APPLIED))
        raise


async def write_record(client: Client, pod: ObservedPod, record: AppliedRecommendation) -> None:
    """Replace the record that the pod has."""
    await _write_annotation(client, pod, encode(to_document(record)).decode())


async def patch_resources(client: Client, pod: ObservedPod, changes: Mapping[str, ContainerChange]) -> None:
    """Resize the containers of the pod, if it is this very one."""
    metadata = pod.metadata
    spec = dict[str, list[dict[str, Any]]]()
    for group, containers in (("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers)):
        for each in containers:
            if (change := changes.get(each.name)) is not None:
                spec.setdefault(group, []).append({"name": each.name, "resources": resources_after(change)})
    patch = {"metadata": {"uid": metadata.uid}, "spec": spec}
    await client.patch(
        OBSERVED_PODS, metadata.name, patch, PatchType.STRATEGIC, metadata.namespace, subresource="resize"
    )


def resources_after(change: ContainerChange) -> dict[str, Any]:
    """The changed part of the container's resources."""
    parts = {"requests": amounts_after(change.requests), "limits": amounts_after(change.limits)}
    return {part: {name: str(each) for name, each in amounts.items()} for part, amounts in parts.items() if amounts}


async def _write_annotation(client: Client, pod: ObservedPod, text: str | None) -> None:
    metadata = pod.metadata
    patch = {"metadata": {"uid": metadata.uid, "annotations": {APPLIED: text}}}
    await client.patch(OBSERVED_PODS, metadata.name, patch, PatchType.MERGE, metadata.namespace)
