"""Subresources that are not plain views of their object: what a POST to ``…/NAME/SUBRESOURCE`` does.

``status`` and ``scale`` are views and go through update and patch; an entry here is an action of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, bad_request, conflict, invalid, not_found
from koordinator.cluster.managed_fields.field_manager import MANAGED_FIELDS, keep_times, set_managers
from koordinator.cluster.managed_fields.scale import managers_of_scale, managers_of_scaled, replica_paths
from koordinator.cluster.patch import check_patch_type, is_apply_patch, unsupported_patch
from koordinator.cluster.resource import Cause, Resource, ScalePaths
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.scale import (
    NO_REPLICAS,
    SCALE,
    SCALE_KIND,
    check_scale,
    empty_replicas,
    has_replicas,
    missing_replicas,
    scale_of,
    scaled,
)
from koordinator.cluster.verbs.apply import configured
from koordinator.cluster.verbs.environment import (
    Attributes,
    Environment,
    check,
    mutate,
    review,
    timestamp,
)
from koordinator.cluster.verbs.eviction import EVICTION, evict
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target, check_form, check_name, check_namespace, decode, encode, shown_one
from koordinator.cluster.verbs.token_request import TOKEN_REQUEST, request_token
from koordinator.cluster.verbs.update import explained, retry, store

# POST pods/NAME/binding: the one moment in which a pod gets its node.


_KIND = ("", "v1", "Binding")
SCALE_SUBRESOURCE: Final = "scale"
_IDENTITY: Final = frozenset(("name", "namespace", "uid", "resourceVersion"))
BINDING: Final = Resource(
    group=_KIND[0],
    version=_KIND[1],
    plural="bindings",
    kind=_KIND[2],
    namespaced=True,
    strategy=ObjectStrategy("v1", "Binding"),
    singular="binding",
    verbs=("create",),
)
"""The form of the body, and the collection that takes it as well; nothing is stored as it."""


async def bind(environment: Environment, target: Target, binding: Document, options: WriteOptions) -> None:
    """Raises ApiError: 409 when the pod has a node, is being deleted or is gated; 404 without the pod."""
    _complete(target, binding)
    context = environment.context(options.warnings)
    attributes = Attributes("CREATE", target, binding, None, context, options, body_kind=_KIND)
    await mutate(environment, attributes, lambda: _complete(target, binding))
    metadata = binding["metadata"]
    if metadata.get("name") != target.name:
        raise bad_request("name in URL does not match name in Binding object")
    destination = _destination(target, binding)
    await review(environment, attributes)
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


async def bind_named(environment: Environment, target: Target, binding: Document, options: WriteOptions) -> None:
    """The same for ``POST bindings``, where the binding itself names the pod. Raises ApiError 400 when it does not."""
    name = check_namespace(target, binding, BINDING).get("name")
    if not name:
        raise bad_request("Name parameter required.")
    pods = environment.registry.stored["", "pods"]
    assert pods is not None
    await bind(environment, Target(pods, target.namespace, str(name), "binding"), binding, options)


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


# The ``scale`` subresource: the same small object for every kind that has replicas.
#
# A Scale is read out of its object, changed as any object is, and its replicas are written back; the object then passes
# the preparation and validation of its own kind. Admission sees the Scale.


Change = Callable[[Document], Document]
"""From the current Scale to the wanted one."""


async def get_scale(environment: Environment, target: Target) -> Stored:
    """Raises ApiError: 404, or 500 for a custom resource that does not say how many replicas it wants."""
    stored = environment.storage.get(target.key)
    if stored is None:
        raise not_found(target.resource, target.name)
    stored = await shown_one(target.resource, stored)
    paths = _paths(target)
    if paths.custom and not has_replicas(decode(target.resource, stored), paths):
        raise missing_replicas(paths)
    return _view(target, stored)


async def update_scale(environment: Environment, target: Target, scale: Document, options: WriteOptions) -> Stored:
    sent = msgspec.json.encode(scale)
    return await _modify(environment, target, lambda old: msgspec.json.decode(sent, type=dict), options)


async def patch_scale(
    environment: Environment, target: Target, content_type: str, body: bytes, options: WriteOptions
) -> Stored:
    """Raises ApiError: 415 for a format that the object's kind does not take."""
    check_patch_type(content_type, target.resource)
    if is_apply_patch(content_type):
        return await _apply_scale(environment, target, body, options)
    with explained(content_type, body, SCALE) as change:
        return await _modify(environment, target, change, options)


async def _apply_scale(environment: Environment, target: Target, body: bytes, options: WriteOptions) -> Stored:
    fields = environment.field_manager(SCALE, options, SCALE_SUBRESOURCE)
    if fields is None:
        raise unsupported_patch(target.resource)
    change = await configured(fields, body, options)
    return await _modify(environment, target, change.to, options, applied=True)


async def _modify(
    environment: Environment, target: Target, change: Change, options: WriteOptions, *, applied: bool = False
) -> Stored:
    resource, paths = target.resource, _paths(target)
    fields = environment.field_manager(SCALE, options, SCALE_SUBRESOURCE)
    in_object = replica_paths(environment.registry, resource)

    async def attempt(stored: Stored, old: Document) -> Stored:
        before = scale_of(old, paths)
        if not has_replicas(old, paths):
            before["spec"]["replicas"] = NO_REPLICAS
        managers = old["metadata"].get(MANAGED_FIELDS) or []
        before["metadata"][MANAGED_FIELDS] = managers_of_scale(managers, in_object)
        scale = change(before)
        _check_identity(target, scale, before)
        context = environment.context(options.warnings)
        attributes = Attributes("UPDATE", target, scale, before, context, options, body_kind=SCALE_KIND)
        if fields is None or applied:
            SCALE.strategy.decode(scale)
        else:
            fields.decode(scale, before)
        if environment.webhooks.mutates(attributes):
            await environment.webhooks.mutate(attributes)
            SCALE.strategy.decode(scale)
        if scale["spec"].get("replicas") == NO_REPLICAS:
            raise empty_replicas(paths)
        check_scale(scale, target.name, paths, resource)
        obj = scaled(old, scale, paths)
        resource.strategy.decode(obj)
        if fields is not None:
            of_scale = scale["metadata"].get(MANAGED_FIELDS) or []
            set_managers(obj, managers_of_scaled(managers, of_scale, in_object, resource.api_version))
            keep_times(obj, old)
        resource.strategy.prepare_update(obj, old, context)
        await check(resource, target.name, resource.strategy.validate, obj, old, context.warnings)
        await environment.webhooks.validate(
            Attributes("UPDATE", target, scale_of(obj, paths), before, context, options, body_kind=SCALE_KIND)
        )
        return await store(environment, target, stored, obj, dry_run=options.dry_run)

    return _view(target, await shown_one(target.resource, await retry(environment, target, attempt)))


def _check_identity(target: Target, scale: Document, before: Document) -> None:
    check_form(SCALE, scale, SCALE.api_version)
    metadata, current = check_namespace(target, scale, SCALE), before["metadata"]
    check_name(target, metadata)
    if metadata.get("resourceVersion") not in (None, "", current["resourceVersion"]):
        raise conflict(target.resource, target.name)
    if metadata.get("uid") not in (None, "", current["uid"]):
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {current['uid']}"
        raise conflict(target.resource, target.name, why)


def _paths(target: Target) -> ScalePaths:
    paths = target.resource.scale
    assert paths is not None
    return paths


def _view(target: Target, stored: Stored) -> Stored:
    """A stored object as the Scale of the response, to be rendered as one."""
    scale = scale_of(decode(target.resource, stored), _paths(target))
    return Stored(stored.key, encode(SCALE, scale), stored.revision)


Action = Callable[[Environment, Target, Document, WriteOptions], Awaitable[Document | None]]
"""(environment, target, body, options) -> the response; None for a Status of success."""

CREATED_SUBRESOURCES: Final[Mapping[tuple[str, str, str], Action]] = {
    ("", "pods", "binding"): bind,
    ("", "pods", "eviction"): evict,
    ("", "serviceaccounts", "token"): request_token,
}
"""(group, plural, subresource) -> action."""
ACTION_KINDS: Final[Mapping[str, Resource]] = {"binding": BINDING, "eviction": EVICTION, "token": TOKEN_REQUEST}
"""Subresource -> the type of its body, where unknown fields are reported."""
