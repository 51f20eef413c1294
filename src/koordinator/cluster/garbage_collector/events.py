"""The one event of the garbage collector, in the real one's words."""

from __future__ import annotations

from typing import Final

from koordinator.cluster.garbage_collector.graph import Metadata, OwnerReference
from koordinator.cluster.resource import Resource
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.environment import Environment, timestamp
from koordinator.cluster.verbs.target import Target

_COMPONENT: Final = "garbage-collector-controller"
_DEFAULT_NAMESPACE: Final = "default"
_REASON: Final = "OwnerRefInvalidNamespace"


async def report_invalid_namespace(
    environment: Environment, resource: Resource, dependent: Metadata, owner: OwnerReference
) -> None:
    """Say of an object that it refers to an owner where it cannot have one."""
    events = environment.registry.stored("", "events")
    assert events is not None
    namespace, now = dependent.namespace, timestamp(environment.clock.now())
    named = f"[{owner.api_version}/{owner.kind}, namespace: {namespace}, name: {owner.name}, uid: {owner.uid}]"
    about = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "name": dependent.name,
        "uid": dependent.uid,
        **({"namespace": namespace} if namespace else {}),
    }
    event = {
        "metadata": {"name": f"{dependent.name}.{environment.random.getrandbits(64):016x}"},
        "involvedObject": about,
        "reason": _REASON,
        "message": f'ownerRef {named} does not exist in namespace "{namespace}"',
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "type": "Warning",
    }
    await create(environment, Target(events, namespace or _DEFAULT_NAMESPACE), event)
