"""POST: a new object gets its name, identity and defaults, passes admission and validation, and is stored."""

from __future__ import annotations

from koordinator.cluster.errors import already_exists, bad_request, invalid
from koordinator.cluster.resource import Document
from koordinator.cluster.storage.interface import KeyExists, Stored
from koordinator.cluster.verbs.admission import Attributes
from koordinator.cluster.verbs.encoding import encode
from koordinator.cluster.verbs.environment import Environment, timestamp
from koordinator.cluster.verbs.identity import check_kind, check_namespace
from koordinator.cluster.verbs.target import Target

_GENERATED_BASE = 58
"""generateName is cut so that five random characters still make a DNS label."""
_GENERATED_ATTEMPTS = 8
_SET_BY_SERVER = ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion", "managedFields")


async def create(
    environment: Environment, target: Target, obj: Document, *, dry_run: bool = False, warnings: list[str] | None = None
) -> Stored:
    """``target.name`` is the name in the URL, usually empty. Takes over ``obj``. Raises ApiError."""
    resource = target.resource
    check_kind(resource, obj)
    metadata = check_namespace(target, obj)
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    for field in _SET_BY_SERVER:
        metadata.pop(field, None)
    metadata["uid"] = environment.new_uid()
    metadata["creationTimestamp"] = timestamp(environment.clock.now())
    base = "" if metadata.get("name") else metadata.get("generateName") or ""
    prepared = await _prepare(environment, target, obj, base, dry_run=dry_run, warnings=warnings)
    for _ in range(_GENERATED_ATTEMPTS if base else 1):
        name = prepared["metadata"]["name"]
        key = resource.storage_key(target.namespace, name)
        try:
            if not dry_run:
                return await environment.storage.create(key, encode(resource, prepared))
            if environment.storage.get(key) is None:
                return Stored(key, encode(resource, prepared), 0)
        except KeyExists:
            pass
        if base:
            prepared["metadata"]["name"] = _generated_name(environment, base)
    raise already_exists(resource, name)


async def _prepare(
    environment: Environment, target: Target, obj: Document, base: str, *, dry_run: bool, warnings: list[str] | None
) -> Document:
    strategy = target.resource.strategy
    if base:
        obj["metadata"]["name"] = _generated_name(environment, base)
    context = environment.context()
    strategy.prepare_create(obj, context)
    named = Target(target.resource, target.namespace, obj["metadata"].get("name") or "", target.subresource)
    attributes = Attributes("CREATE", named, obj, None, context, dry_run)
    changed = [await admission.mutate(attributes) for admission in environment.admission]
    if any(changed):
        strategy.prepare_create(obj, context)
    if causes := strategy.validate(obj, None):
        raise invalid(target.resource, named.name, causes)
    for admission in environment.admission:
        await admission.validate(attributes)
    if warnings is not None:
        warnings.extend(context.warnings)
    return obj


def _generated_name(environment: Environment, base: str) -> str:
    return base[:_GENERATED_BASE] + environment.name_suffix()
