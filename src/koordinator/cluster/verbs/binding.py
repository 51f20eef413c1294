"""POST pods/NAME/binding: the one moment in which a pod gets its node."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, bad_request, conflict, invalid
from koordinator.cluster.resource import Cause, Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.verbs.admission import Attributes
from koordinator.cluster.verbs.environment import Environment, timestamp
from koordinator.cluster.verbs.identity import check_form, check_namespace
from koordinator.cluster.verbs.modify import retry, store
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target

_KIND = ("", "v1", "Binding")
_IDENTITY: Final = frozenset(("name", "namespace", "uid", "resourceVersion"))
BINDING: Final = Resource(
    group=_KIND[0],
    version=_KIND[1],
    plural="bindings",
    kind=_KIND[2],
    namespaced=True,
    strategy=ObjectStrategy("v1", "Binding"),
)
"""The form of the body; nothing is stored as it."""


async def bind(environment: Environment, target: Target, binding: Document, options: WriteOptions) -> None:
    """Raises ApiError: 409 when the pod has a node, is being deleted or is gated; 404 without the pod."""
    _complete(target, binding)
    context = environment.context(options.warnings)
    attributes = Attributes("CREATE", target, binding, None, context, options, body_kind=_KIND)
    if environment.webhooks.mutates(attributes):
        await environment.webhooks.mutate(attributes)
        _complete(target, binding)
    metadata = binding["metadata"]
    if (metadata.get("name") or target.name) != target.name:
        raise bad_request("name in URL does not match name in Binding object")
    destination = _destination(target, binding)
    await environment.webhooks.validate(attributes)
    now = timestamp(environment.clock.now())

    async def attempt(stored: Stored, pod: Document) -> Stored:
        _check_preconditions(target, metadata, pod)
        _check_bindable(target, pod)
        pod["spec"]["nodeName"] = destination
        for field in ("annotations", "labels"):
            if metadata.get(field):
                pod["metadata"][field] = {**(pod["metadata"].get(field) or {}), **metadata[field]}
        _mark_scheduled(pod, now)
        return await store(environment, target, stored, pod, dry_run=options.dry_run)

    await retry(environment, target, attempt)


def _complete(target: Target, binding: Document) -> None:
    """What the real server fills in before anyone else sees the binding. Raises ApiError 400."""
    check_form(BINDING, binding, BINDING.api_version)
    check_namespace(target, binding, BINDING)
    if not _is_plain(binding):
        BINDING.strategy.decode(binding)


def _is_plain(binding: Document) -> bool:
    """As schedulers send it: nothing but texts, so that decoding would find and change nothing."""
    target, metadata = binding.get("target"), binding["metadata"]
    if type(target) is not dict or not metadata.keys() <= _IDENTITY:
        return False
    return all(type(text) is str for text in (*target.values(), *metadata.values()))


def _destination(target: Target, binding: Document) -> str:
    destination = binding.get("target") or {}
    causes = []
    if destination.get("kind") not in (None, "", "Node"):
        message = f'Unsupported value: "{destination["kind"]}": supported values: "Node", "<empty>"'
        causes.append(Cause("FieldValueNotSupported", "target.kind", message))
    if not destination.get("name"):
        causes.append(Cause("FieldValueRequired", "target.name", "Required value"))
    if causes:
        raise invalid(target.resource, target.name, causes)
    return str(destination["name"])


def _check_preconditions(target: Target, metadata: Document, pod: Document) -> None:
    for field, title in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted, found = metadata.get(field), pod["metadata"][field]
        if wanted and wanted != found:
            why = f"Precondition failed: {title} in precondition: {wanted}, {title} in object meta: {found}"
            raise conflict(target.resource, target.name, why)


def _check_bindable(target: Target, pod: Document) -> None:
    spec = pod["spec"]
    if pod["metadata"].get("deletionTimestamp"):
        raise _refused(target, f"pod {target.name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _refused(target, f'pod {target.name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _refused(target, f"pod {target.name} has non-empty .spec.schedulingGates")


def _refused(target: Target, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on pods/binding "{target.name}": {why}'
    return ApiError(409, "Conflict", message, {"name": target.name, "kind": "pods/binding"})


def _mark_scheduled(pod: Document, now: str) -> None:
    status = pod.setdefault("status", {})
    # A nomination is a hint for the scheduler and stale once the pod has its node.
    status.pop("nominatedNodeName", None)
    conditions = status.setdefault("conditions", [])
    found = next((condition for condition in conditions if condition.get("type") == "PodScheduled"), None)
    changed_at = now
    if found is not None:
        if found.get("status") == "True":
            changed_at = found.get("lastTransitionTime") or now
        conditions.remove(found)
    conditions.append(
        {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": changed_at}
    )
