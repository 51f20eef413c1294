"""A request as the verbs need it: the object that its path names, its body as a document, its unknown fields, the
options of a write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web

from koordinator.api.document import Document, repeated_fields
from koordinator.base.durations import DurationError, parse_duration
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.access.identity import ADMIN, User
from koordinator.cluster.errors import bad_request, invalid_options, unsupported_media_type
from koordinator.cluster.limits import MAX_DEPTH, TOO_DEEP, is_too_deep
from koordinator.cluster.patch import is_apply_patch
from koordinator.cluster.protobuf.decoding import decode
from koordinator.cluster.protobuf.envelope import CONTENT_TYPE as PROTOBUF
from koordinator.cluster.resource import Cause, Resource
from koordinator.cluster.strategy.causes import forbidden, go_quoted, not_supported, required, too_long
from koordinator.cluster.strategy.json_syntax import json_kind, syntax_error
from koordinator.cluster.verbs.options import LONGEST_MANAGER, WRITE_SECONDS, WriteOptions, boolean, check_dry_run
from koordinator.cluster.yaml_body import YamlError, read_yaml

# The grammar of resource paths: ``/api/v1/…`` and ``/apis/GROUP/VERSION/…``.


_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """The parts of a path below a group version; absent parts are empty (``namespace``: None)."""

    group: str
    version: str
    plural: str
    namespace: str | None
    name: str
    subresource: str
    watch: bool = False
    """In the form that was there before the query parameter: ``/api/v1/watch/…``."""


def parse_resource_path(path: str) -> ResourcePath | None:
    """None for a path that names no resource."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = None
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    if rest[0] == "namespaces" and len(rest) > 2 and (len(rest) > 3 or rest[2] not in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    if "" in rest:
        return None
    name = rest[1] if len(rest) > 1 else ""
    return ResourcePath(group, version, rest[0], namespace, name, "/".join(rest[2:]), watch)


# Request bodies: JSON, YAML or the protobuf of client-go, as one document.


_JSON: Final = "application/json"
_YAML: Final = "application/yaml"
_ACCEPTED: Final = (_JSON, _YAML, PROTOBUF)
_LONG_YAML: Final = 16 << 10
"""Bytes from which on YAML is parsed beside the event loop: a mebibyte takes seconds."""
_NAMES: Final = ("apiVersion", "kind")
_SHOWN: Final = 30
"""Bytes of a body in a message."""
_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
_UNDECODED: Final = "couldn't get version/kind; json parse error: "


class _Undecodable(KoordinatorError):
    """The text is the real server's."""


def media_type(request: web.BaseRequest) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


async def read_document(request: web.BaseRequest, kind: str, resource: Resource | None = None) -> Document:
    """The object of a ``kind`` in the body. Raises ApiError: 400 when it does not parse, 415 for another format.

    ``resource`` names the kind where a body in protobuf does not.
    """
    body = await request.read()
    try:
        return await _decoded(body, media_type(request), resource)
    except _Undecodable as error:
        why = f"the object provided is unrecognized (must be of type {kind}): {error} ({_summary(body)})"
        raise bad_request(why) from error


async def read_options(request: web.BaseRequest) -> Document | None:
    """The DeleteOptions in the body; None when it is empty. Raises ApiError as ``read_document`` does."""
    body = await request.read()
    if not body:
        return None
    try:
        return await _decoded(body, media_type(request), None)
    except _Undecodable as error:
        raise bad_request(str(error)) from error


async def _decoded(body: bytes, content_type: str, resource: Resource | None) -> Document:
    if content_type == PROTOBUF:
        try:
            return decode(body, resource)
        except RecursionError as error:
            raise _Undecodable(TOO_DEEP) from error
    if content_type == _YAML:
        document = await asyncio.to_thread(_from_yaml, body) if len(body) > _LONG_YAML else _from_yaml(body)
    elif content_type in ("", _JSON):
        document = _from_json(body)
    else:
        raise unsupported_media_type(_ACCEPTED)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _Undecodable(
            f"{_UNDECODED}json: cannot unmarshal {json_kind(document)} into Go value of type {_TYPE_META}"
        )
    _check_names(document)
    if resource is not None and resource.schema is not None and not document.get("kind"):
        raise _Undecodable(f"Object 'Kind' is missing in '{body.decode(errors='replace')}'")
    return document


def _from_yaml(body: bytes) -> Any:
    try:
        return read_yaml(body)
    except YamlError as error:
        raise _Undecodable(str(error)) from error


def _from_json(body: bytes) -> Any:
    try:
        document = msgspec.json.decode(body)
    except UnicodeDecodeError:
        # As Go does; where such a text matters, it is refused for what it has become.
        return _from_json(body.decode(errors="replace").encode())
    except (msgspec.DecodeError, RecursionError) as error:
        raise _Undecodable(_UNDECODED + syntax_error(body, error)) from error
    # Few bodies have so many brackets that they could be too deep.
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and is_too_deep(document):
        raise _Undecodable(_UNDECODED + TOO_DEEP)
    return document


def _check_names(document: Document) -> None:
    for name in _NAMES:
        value = document.get(name)
        if value is None:
            document.pop(name, None)
        elif not isinstance(value, str):
            why = f"json: cannot unmarshal {json_kind(value)} into Go struct field .{name} of type string"
            raise _Undecodable(_UNDECODED + why)
        elif value.count("/") > 1 and name == "apiVersion":
            raise _Undecodable(f"unexpected GroupVersion string: {value}")


def _summary(body: bytes) -> str:
    """The beginning of a body that is not understood, in hexadecimal digits unless it looks like JSON."""
    if not body:
        return "<empty>"
    more = " ..." if len(body) > _SHOWN else ""
    start = body[:_SHOWN]
    return (start.decode(errors="replace") if body.startswith(b"{") else start.hex()) + more


# The query parameters of a write.


_KINDS: Final = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
"""HTTP method -> what the real server reads the query into."""
_MODES: Final = ("Ignore", "Strict", "Warn")


def write_options(
    method: str, query: Mapping[str, str], headers: Mapping[str, str], now: float, user: User = ADMIN
) -> WriteOptions:
    """``now`` is on the monotonic clock.

    Raises ApiError 400 for a timeout that is no duration, 422 for values that are not allowed.
    """
    agent = headers.get("User-Agent", "")
    applies = method == "PATCH" and is_apply_patch(headers.get("Content-Type", ""))
    if not query and not applies:
        return WriteOptions(user_agent=agent, deadline=now + WRITE_SECONDS, user=user)
    deadline = now + _timeout(query)
    manager, mode, dry = (query.get(name, "") for name in ("fieldManager", "fieldValidation", "dryRun"))
    causes = _check_patch(query, applies=applies) if method == "PATCH" else []
    causes += _check_field_manager(manager) if manager else []
    causes += check_dry_run([dry]) if dry else []
    if mode and mode not in _MODES:
        causes.append(not_supported("fieldValidation", mode, ("", *_MODES)))
    if causes:
        raise invalid_options(_KINDS[method], causes)
    return WriteOptions(
        dry_run=bool(dry),
        field_manager=manager,
        user_agent=agent,
        force="force" in query and boolean(query["force"]),
        field_validation=mode,
        deadline=deadline,
        user=user,
    )


def deletion_options(query: Mapping[str, str], now: float, user: User, *, dry_run: bool) -> WriteOptions:
    """Of a request whose own options say whether it is a dry run. Raises ApiError 400 as ``write_options`` does."""
    return WriteOptions(dry_run=dry_run, deadline=now + _timeout(query), user=user)


def _check_patch(query: Mapping[str, str], *, applies: bool) -> list[Cause]:
    if not applies:
        return [forbidden("force", "may not be specified for non-apply patch")] if "force" in query else []
    return [] if query.get("fieldManager") else [required("fieldManager", "is required for apply patch")]


def _check_field_manager(manager: str) -> list[Cause]:
    causes = [too_long("fieldManager", LONGEST_MANAGER)] if len(manager.encode()) > LONGEST_MANAGER else []
    for index, character in enumerate(manager):
        if not character.isprintable():
            why = f"invalid character U+{ord(character):04X} (at position {len(manager[:index].encode())})"
            return [*causes, Cause("FieldValueInvalid", "fieldManager", f"Invalid value: {go_quoted(manager)}: {why}")]
    return causes


def _timeout(query: Mapping[str, str]) -> float:
    """Seconds that a write may take."""
    text = query.get("timeout", "")
    if not text:
        return WRITE_SECONDS
    try:
        seconds = parse_duration(text).total_seconds()
    except DurationError as error:
        message = f'invalid timeout specified in the request URL - time: invalid duration "{text}"'
        raise bad_request(message) from error
    return min(seconds, WRITE_SECONDS) if seconds > 0 else WRITE_SECONDS


# ``fieldValidation``: are fields that a kind does not have ignored, warned of or refused?


def _paths(value: Any, path: str) -> Iterator[str]:
    """Of all members, in the order of the text."""
    if isinstance(value, dict):
        for name, member in value.items():
            at = f"{path}.{name}" if path else name
            yield at
            yield from _paths(member, at)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _paths(item, f"{path}[{index}]")


async def check_fields(resource: Resource, obj: Document, request: web.BaseRequest, mode: str) -> list[str]:
    """The warnings of the response: ``obj`` is the body of the request. Raises ApiError 400 for an unknown field, and
    for one that is there twice, in a strict request."""
    if mode == "Ignore":
        return []
    found = [(path, f"unknown field {go_quoted(path)}") for path in resource.strategy.unknown_fields(obj)]
    if media_type(request) in ("", _JSON):
        repeated = repeated_fields(await request.read(), obj)
        found = [*((path, f"duplicate field {go_quoted(path)}") for path in repeated), *found]
        if repeated and resource.schema is None:
            # The decoder of built-in kinds finds both at once; for custom resources the schema is looked at later.
            places = {path: place for place, path in enumerate(_paths(obj, ""))}
            found.sort(key=lambda error: places.get(error[0], 0))
    errors = [text for _, text in found]
    if errors and mode == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {', '.join(errors)}"
        )
    return errors
