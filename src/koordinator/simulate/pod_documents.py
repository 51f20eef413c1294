"""Properties of pod documents that simulations need: the owner, whether the pod has finished, its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordinator.api.annotations import CONFIG_MIRROR, CONFIG_SOURCE
from koordinator.api.document import Document
from koordinator.api.kinds import DAEMON_SETS
from koordinator.api.pod import FINISHED_PHASES


def key_of(pod: Document) -> str:
    """``namespace/name``."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def owner_of(obj: Mapping[str, Any]) -> Document | None:
    """The owner reference of the object's controller; None where it has none."""
    owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def is_of_daemon_set(pod: Document) -> bool:
    """Whether it belongs to its node, as the pods of a DaemonSet do."""
    owner = owner_of(pod)
    return owner is not None and owner["kind"] == DAEMON_SETS.name


def is_finished(pod: Document) -> bool:
    """Whether its containers have ended for good, so that it holds no resources of its node any more."""
    return (pod.get("status") or {}).get("phase") in FINISHED_PHASES


def is_mirror(pod: Document) -> bool:
    """Whether it is a static pod of the kubelet, which cannot be evicted."""
    annotations = pod["metadata"].get("annotations") or {}
    return CONFIG_MIRROR in annotations or annotations.get(CONFIG_SOURCE, "api") != "api"
