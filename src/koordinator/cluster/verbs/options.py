"""What may be asked of the verbs beside their objects, checked as the real server checks it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.canonical import WrongType, canonicalize
from koordinator.api.kubernetes_types.table import named
from koordinator.cluster.access.identity import ADMIN, User
from koordinator.cluster.errors import bad_request, invalid_options
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, go_quoted, invalid, not_supported

Query = Mapping[str, str]

_NOT_OLDER: Final = "NotOlderThan"
_MATCHES: Final = ("Exact", _NOT_OLDER)
_MATCH: Final = "resourceVersionMatch"
_LIST: Final = "ListOptions"
_DELETE: Final = "DeleteOptions"
_OPTIONS_TYPE: Final = named("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
_POLICIES: Final = ("Foreground", "Background", "Orphan")
_ALL: Final = "All"
LONGEST_MANAGER: Final = 128
"""Bytes."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_UNSIGNED: Final = re.compile(r"[0-9]+")
_LONGEST_INTEGER: Final = 40
"""Digits; Python takes long to read thousands."""
_META: Final = "meta.k8s.io/v1"
API_SERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
"""Whose writes those are that the server makes itself, as a real cluster names them."""
WRITE_SECONDS: Final = 34.0
"""The real server's limit for a write."""


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Of list, watch and deletecollection."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    revision: int | None = None
    """``resourceVersion``: None when not given; 0 means whatever is at hand."""
    match: str = ""
    allow_bookmarks: bool = False
    send_initial_events: bool | None = None
    timeout_seconds: int | None = None

    @classmethod
    def parse(cls, query: Query) -> ListOptions:
        """Raises ApiError 400 for values that do not parse."""
        initial = query.get("sendInitialEvents")
        return cls(
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            limit=_integer(query, "limit") or 0,
            continue_token=query.get("continue", ""),
            revision=_revision(query.get("resourceVersion", "")),
            match=query.get("resourceVersionMatch", ""),
            allow_bookmarks=boolean(query.get("allowWatchBookmarks")),
            send_initial_events=None if initial in (None, "") else boolean(initial),
            timeout_seconds=_integer(query, "timeoutSeconds"),
        )

    def check_list(self) -> None:
        """Raises ApiError 422 for combinations that mean nothing, and 400."""
        causes: list[Cause] = []
        if self.match:
            if self.revision is None:
                causes.append(_match("is forbidden unless resourceVersion is provided"))
            if self.continue_token:
                causes.append(_match("is forbidden when continue is provided"))
            if self.match not in _MATCHES:
                causes.append(not_supported(_MATCH, self.match, (*_MATCHES, "")))
            if self.match == "Exact" and self.revision == 0:
                causes.append(_match('"exact" is forbidden for resourceVersion "0"'))
        if self.send_initial_events is not None:
            causes.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        if causes:
            raise invalid_options(_LIST, causes)
        if self.continue_token and self.revision:
            raise bad_request("specifying resource version is not allowed when using continue")

    def check_watch(self) -> None:
        """Raises ApiError 422 for combinations that mean nothing."""
        causes: list[Cause] = []
        if self.send_initial_events is not None and self.match != _NOT_OLDER:
            why = f"sendInitialEvents requires setting {_MATCH} to {_NOT_OLDER}"
            causes.append(forbidden(_MATCH, why))
        if self.match:
            if self.send_initial_events is None:
                causes.append(_match("is forbidden for watch unless sendInitialEvents is provided"))
            if self.match != _NOT_OLDER:
                causes.append(not_supported(_MATCH, self.match, (_NOT_OLDER,)))
            if self.continue_token:
                causes.append(_match("is forbidden when continue is provided"))
        if causes:
            raise invalid_options(_LIST, causes)


class WriteOptions(msgspec.Struct, frozen=True, eq=False):
    """Of every request that writes, with the place where what it warns of is collected."""

    dry_run: bool = False
    field_manager: str = ""
    user_agent: str = ""
    force: bool = False
    """Server-side apply takes over the fields of others."""
    field_validation: str = ""
    deadline: float | None = None
    """On the monotonic clock; what waits for others past it gives up."""
    user: User = ADMIN
    """Who sends the request."""
    warnings: list[str] = msgspec.field(default_factory=list)

    def document(self, kind: str) -> Document:
        """As an object of the API: CreateOptions or UpdateOptions."""
        given = {"fieldManager": self.field_manager, "fieldValidation": self.field_validation}
        named = {name: value for name, value in given.items() if value}
        return {"kind": kind, "apiVersion": _META, **({"dryRun": ["All"]} if self.dry_run else {}), **named}


@lru_cache(maxsize=256)
def manager_of(user_agent: str) -> str:
    """Who owns the fields that are written where the request names no manager: the program that it is from."""
    name = "".join(filter(str.isprintable, user_agent.partition("/")[0]))
    return name.encode()[:LONGEST_MANAGER].decode(errors="ignore")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """From the body, or where that is empty from the query."""

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    propagation_policy: str = ""
    """Foreground, Background or Orphan; empty leaves it to the object and to its kind."""
    orphan_dependents: bool | None = None
    """What came before ``propagation_policy``; never both."""

    @classmethod
    def parse(cls, body: Document | None, query: Query) -> DeleteOptions:
        """Takes over ``body``. Raises ApiError: 400 for values of other types, 422 for those that are not allowed."""
        given = _from_query(query) if body is None else body
        kind = given.get("kind") or _DELETE
        if kind != _DELETE:
            version = given.get("apiVersion") or "v1"
            why = f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
            raise bad_request(why)
        try:
            canonicalize(given, _OPTIONS_TYPE)
        except WrongType as error:
            raise bad_request(str(error)) from error
        if causes := _check_deletion(given):
            raise invalid_options(_DELETE, causes)
        preconditions = given.get("preconditions") or {}
        return cls(
            grace_period_seconds=given.get("gracePeriodSeconds"),
            uid=preconditions.get("uid") or "",
            resource_version=preconditions.get("resourceVersion") or "",
            # Also where the real server goes by the body alone: what was meant as a trial must not delete.
            dry_run=bool(given.get("dryRun")) or query.get("dryRun") == _ALL,
            propagation_policy=given.get("propagationPolicy") or "",
            orphan_dependents=given.get("orphanDependents"),
        )

    def document(self) -> Document:
        """As an object of the API."""
        document: Document = {"kind": "DeleteOptions", "apiVersion": _META}
        if self.grace_period_seconds is not None:
            document["gracePeriodSeconds"] = self.grace_period_seconds
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        if any(preconditions.values()):
            document["preconditions"] = {name: value for name, value in preconditions.items() if value}
        if self.orphan_dependents is not None:
            document["orphanDependents"] = self.orphan_dependents
        if self.propagation_policy:
            document["propagationPolicy"] = self.propagation_policy
        return {**document, "dryRun": ["All"]} if self.dry_run else document


def _from_query(query: Query) -> Document:
    """DeleteOptions of a request without a body."""
    options: Document = {}
    if (grace := _integer(query, "gracePeriodSeconds")) is not None:
        options["gracePeriodSeconds"] = grace
    if "orphanDependents" in query:
        options["orphanDependents"] = boolean(query["orphanDependents"])
    if policy := query.get("propagationPolicy"):
        options["propagationPolicy"] = policy
    if requested := query.get("dryRun"):
        options["dryRun"] = [requested]
    return options


def _check_deletion(options: Document) -> list[Cause]:
    causes: list[Cause] = []
    policy = options.get("propagationPolicy")
    if policy is not None and options.get("orphanDependents") is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(invalid("propagationPolicy", policy, why))
    elif policy is not None and policy not in _POLICIES:
        causes.append(not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    return causes + check_dry_run(options.get("dryRun") or [])


def check_dry_run(requested: list[str]) -> list[Cause]:
    return [] if set(requested) <= {_ALL} else [not_supported("dryRun", requested, (_ALL,))]


def _integer(query: Query, name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not _INTEGER.fullmatch(text):
        raise bad_request(f"strconv.ParseInt: parsing {go_quoted(text)}: invalid syntax")
    if len(text) > _LONGEST_INTEGER or not -(2**63) <= int(text) < 2**63:
        raise bad_request(f"strconv.ParseInt: parsing {go_quoted(text)}: value out of range")
    return int(text)


def boolean(text: str | None) -> bool:
    return text is not None and text not in ("", "0", "false", "False", "FALSE", "f", "F")


def _revision(text: str) -> int | None:
    if not text:
        return None
    why = ""
    if not _UNSIGNED.fullmatch(text):
        why = "invalid syntax"
    elif len(text) > _LONGEST_INTEGER or int(text) >= 2**64:
        why = "value out of range"
    if why:
        shown = go_quoted(text)
        problem = f"resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: {why}"
        raise bad_request(f"invalid resource version: {problem}")
    return int(text)


def _match(why: str) -> Cause:
    return forbidden(_MATCH, f"{_MATCH} {why}")
