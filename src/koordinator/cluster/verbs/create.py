"""POST: a new object gets its name, identity and defaults, passes admission and validation, and is stored."""

from __future__ import annotations

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.errors import already_exists, bad_request
from koordinator.cluster.managed_fields.field_manager import untracked
from koordinator.cluster.storage.interface import KeyExists, Stored
from koordinator.cluster.verbs.environment import Attributes, Environment, accept, counted, holding, mutate, timestamp
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target, check_kind, check_namespace, encode_within_limit, storable

_GENERATED_BASE = 58
"""generateName is cut so that five random characters still make a DNS label."""
_GENERATED_ATTEMPTS = 8
_SET_BY_SERVER = ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion")


async def create(
    environment: Environment,
    target: Target,
    obj: Document,
    options: WriteOptions | None = None,
    *,
    applied: bool = False,
) -> Stored:
    """``target.name`` is the name in the URL, usually empty. Takes over ``obj``. Raises ApiError.

    ``applied``: by server-side apply, which has said already who manages which field.
    """
    resource, options = target.resource, options or WriteOptions()
    check_kind(resource, obj)
    metadata = check_namespace(target, obj)
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    for field in _SET_BY_SERVER:
        metadata.pop(field, None)
    fields = environment.field_manager(resource, options)
    if fields is None or applied:
        resource.strategy.decode(obj)
    else:
        fields.decode(obj)
    if fields is None:
        untracked(obj)
    context = environment.context(options.warnings, options.user)
    attributes = Attributes("CREATE", _named(target, obj), obj, None, context, options)
    await mutate(environment, attributes)
    base = _name(environment, obj["metadata"])
    if attributes.target.name != obj["metadata"].get("name"):
        attributes = msgspec.structs.replace(attributes, target=_named(target, obj))
    with holding(environment, target) as allocate:
        resource.strategy.prepare_create(obj, context)
        await accept(environment, attributes, resource.strategy.validate, allocate)
        return await _accepted(environment, attributes, base)


async def _accepted(environment: Environment, attributes: Attributes, base: str) -> Stored:
    """Store what nobody refuses but a quota."""
    target, obj, options = attributes.target, attributes.obj, attributes.request
    assert obj is not None
    warn = environment.creation_warnings.get((target.resource.group, target.resource.plural))
    if warn is not None and (warning := warn(obj)) is not None:
        options.warnings.append(warning)
    with counted(environment, target, obj, dry_run=options.dry_run):
        return await _store(environment, target, obj, base, dry_run=options.dry_run)


async def _store(environment: Environment, target: Target, obj: Document, base: str, *, dry_run: bool) -> Stored:
    """A generated name that is taken is generated anew."""
    resource = target.resource
    for _ in range(_GENERATED_ATTEMPTS if base else 1):
        name = obj["metadata"]["name"]
        key = Target(resource, target.namespace, name).key
        try:
            value = encode_within_limit(resource, await storable(resource, obj))
            if not dry_run:
                return await environment.storage.create(key, value)
            if environment.storage.get(key) is None:
                return Stored(key, value, 0)
        except KeyExists:
            pass
        if base:
            obj["metadata"]["name"] = _generated_name(environment, base)
    raise already_exists(resource, name)


def _named(target: Target, obj: Document) -> Target:
    return Target(target.resource, target.namespace, obj["metadata"].get("name") or "", target.subresource)


def _name(environment: Environment, metadata: Document) -> str:
    """Give the object its identity; returns what its name was generated from, empty for a given name."""
    metadata["uid"] = environment.new_uid()
    metadata["creationTimestamp"] = timestamp(environment.clock.now())
    base = "" if metadata.get("name") else metadata.get("generateName") or ""
    if isinstance(base, str) and base:
        metadata["name"] = _generated_name(environment, base)
    return base


def _generated_name(environment: Environment, base: str) -> str:
    return base[:_GENERATED_BASE] + environment.name_suffix()
