"""POST: a new object gets its name, identity and defaults, passes admission and validation, and is stored."""

from __future__ import annotations

from dataclasses import replace

from koordinator.api.document import Document
from koordinator.cluster.errors import already_exists, bad_request
from koordinator.cluster.managed_fields.field_manager import MANAGED_FIELDS, keep_readable, untracked
from koordinator.cluster.storage.interface import KeyExists, Stored
from koordinator.cluster.strategy.missing_controllers import creation_warning
from koordinator.cluster.verbs.converted import storable
from koordinator.cluster.verbs.environment import Allocate, Attributes, Environment, timestamp
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target, check_kind, check_namespace, encode_within_limit
from koordinator.cluster.verbs.validation import check

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
    await environment.admission.mutate(attributes)
    if environment.webhooks.mutates(attributes):
        await _mutate(environment, attributes)
    base = _name(environment, obj["metadata"])
    if attributes.target.name != obj["metadata"].get("name"):
        attributes = replace(attributes, target=_named(target, obj))
    with environment.addresses.holding(target) as allocate:
        await _prepare(environment, attributes, allocate)
        return await _admitted(environment, attributes, base)


async def _admitted(environment: Environment, attributes: Attributes, base: str) -> Stored:
    """Store what nobody refuses but a quota."""
    target, obj, options = attributes.target, attributes.obj, attributes.request
    assert obj is not None
    if environment.warns_of_missing_controllers:
        warning = creation_warning(target.resource, obj, controllers_run=environment.workload_controllers)
        if warning is not None:
            options.warnings.append(warning)
    with environment.quotas.taken(target, obj, dry_run=options.dry_run):
        return await _store(environment, target, obj, base, dry_run=options.dry_run)


async def _store(environment: Environment, target: Target, obj: Document, base: str, *, dry_run: bool) -> Stored:
    """A generated name that is taken is generated anew."""
    resource = target.resource
    for _ in range(_GENERATED_ATTEMPTS if base else 1):
        name = obj["metadata"]["name"]
        key = resource.storage_key(target.namespace, name)
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


async def _mutate(environment: Environment, attributes: Attributes) -> None:
    """Webhooks see what the plugins have made of the decoded object, before the server adds anything to it."""
    obj, target = attributes.obj, attributes.target
    assert obj is not None
    managers = obj["metadata"].get(MANAGED_FIELDS)
    await environment.webhooks.mutate(attributes)
    check_namespace(target, obj)
    target.resource.strategy.decode(obj)
    keep_readable(obj, managers, attributes.request.warnings)


def _name(environment: Environment, metadata: Document) -> str:
    """Give the object its identity; returns what its name was generated from, empty for a given name."""
    metadata["uid"] = environment.new_uid()
    metadata["creationTimestamp"] = timestamp(environment.clock.now())
    base = "" if metadata.get("name") else metadata.get("generateName") or ""
    if isinstance(base, str) and base:
        metadata["name"] = _generated_name(environment, base)
    return base


async def _prepare(environment: Environment, attributes: Attributes, allocate: Allocate) -> None:
    obj, target = attributes.obj, attributes.target
    assert obj is not None
    target.resource.strategy.prepare_create(obj, attributes.context)
    validate, warnings = target.resource.strategy.validate, attributes.context.warnings
    await check(target.resource, target.name, validate, obj, None, warnings)
    allocate(obj)
    await environment.admission.validate(attributes)
    await environment.webhooks.validate(attributes)


def _generated_name(environment: Environment, base: str) -> str:
    return base[:_GENERATED_BASE] + environment.name_suffix()
