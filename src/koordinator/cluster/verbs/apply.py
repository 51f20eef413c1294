"""PATCH of server-side apply: an object becomes what its appliers want of it, and is created where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from koordinator.api.document import Document, copied, repeated_fields
from koordinator.cluster.errors import ApiError, bad_request, conflict
from koordinator.cluster.limits import is_too_deep
from koordinator.cluster.managed_fields.applied import applied
from koordinator.cluster.managed_fields.field_manager import FieldManager
from koordinator.cluster.patch import unsupported_patch
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy.json_syntax import json_kind
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target, check_name, check_namespace
from koordinator.cluster.verbs.update import modify
from koordinator.cluster.yaml_body import YamlError, read_yaml, repeated_keys

_ATTEMPTS: Final = 100
_NOT_FOUND: Final = 404
_ALREADY_EXISTS: Final = "AlreadyExists"
_LONG_YAML: Final = 16 << 10
"""Bytes from which on YAML is parsed beside the event loop: a mebibyte takes seconds."""


async def apply(
    environment: Environment,
    target: Target,
    body: bytes,
    options: WriteOptions,
    *,
    check_creation: Callable[[], None] = lambda: None,
) -> tuple[Stored, bool]:
    """The new state, and whether the object was created. Raises ApiError, as ``check_creation`` does where the sender
    may not create it.

    409 for fields that others manage, unless the request is forced; 400 and 500 for a configuration that does not fit.
    """
    fields = environment.field_manager(target.resource, options, target.subresource)
    if fields is None:
        raise unsupported_patch(target.resource)
    change = await configured(fields, body, options)
    for _ in range(_ATTEMPTS):
        try:
            if target.subresource or environment.storage.get(target.key) is not None:
                stored = await modify(environment, target, change.to, options, compares_uid=False, applied=True)
                return stored, False
            check_creation()
            return await create(environment, target, _new(target, change), options, applied=True), True
        except ApiError as error:
            # Somebody else has created or removed the object meanwhile.
            gone = error.code == _NOT_FOUND and not target.subresource
            if error.reason != _ALREADY_EXISTS and not (gone and environment.storage.get(target.key) is None):
                raise
    raise conflict(target.resource, target.name)


class Configured:
    """The changes that an applied configuration makes."""

    def __init__(self, fields: FieldManager, config: Document, force: bool, repeated: ApiError | None) -> None:
        self._fields = fields
        self._config = config
        self._force = force
        self._repeated = repeated

    def to(self, old: Document | None) -> Document:
        """To an object, or None where there is none yet."""
        new = applied(self._fields, old, copied(self._config), force=self._force)
        if self._repeated is not None:
            raise self._repeated
        return new


async def configured(fields: FieldManager, body: bytes, options: WriteOptions) -> Configured:
    """What a body requests. Raises ApiError 400 for one that is not read."""
    config = await _document(body)
    repeated = [] if options.field_validation == "Ignore" else _repeated(body, config)
    error = None
    if repeated:
        why = "error converting YAML to JSON: yaml: unmarshal errors:\n" + "\n".join(f"  {each}" for each in repeated)
        if options.field_validation == "Strict":
            error = bad_request(f"error strict decoding YAML: {why}")
        else:
            options.warnings.append(why)
    return Configured(fields, config, options.force, error)


def _new(target: Target, change: Configured) -> Document:
    """The object of a configuration that is the first of its name."""
    obj = change.to(None)
    metadata = check_namespace(target, obj)
    if uid := metadata.get("uid"):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(target.resource, target.name, why)
    check_name(target, metadata)
    metadata.pop("resourceVersion", None)
    return obj


async def _document(body: bytes) -> Document:
    document = await _decoded(body)
    if document is None:
        return {}
    if not isinstance(document, dict):
        why = f"cannot unmarshal {json_kind(document)} into Go value of type map[string]interface {{}}"
        raise _undecodable(f"error unmarshaling JSON: while decoding JSON: json: {why}")
    if is_too_deep(document):
        raise _undecodable("error unmarshaling JSON: while decoding JSON: exceeded max depth")
    return document


async def _decoded(body: bytes) -> Any:
    """Most bodies are JSON, which is YAML that is read a hundred times as fast."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return await asyncio.to_thread(read_yaml, body) if len(body) > _LONG_YAML else read_yaml(body)
    except YamlError as error:
        raise _undecodable(f"error converting YAML to JSON: {error}") from error


def _undecodable(why: str) -> ApiError:
    return bad_request(f"error decoding YAML: {why}")


def _repeated(body: bytes, config: Document) -> list[str]:
    """Keys that are there twice. JSON is searched without the parser of YAML, unless there are some."""
    is_json = body.lstrip().startswith(b"{")
    return repeated_keys(body) if not is_json or repeated_fields(body, config) else []
