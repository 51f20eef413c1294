"""Query parameters of the verbs, checked as the real server checks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.base.durations import DurationError, parse_duration
from koordinator.cluster.errors import ApiError, bad_request

Query = Mapping[str, str]

_MATCHES = ("", "Exact", "NotOlderThan")
_META: Final = "meta.k8s.io/v1"
_TIMEOUT_SECONDS: Final = 34.0
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
        """Raises ApiError 400 for values that do not parse, 422 for combinations that mean nothing."""
        match = query.get("resourceVersionMatch", "")
        if match not in _MATCHES:
            raise _invalid_option("resourceVersionMatch", f'Unsupported value: "{match}"', 'supported values: "Exact"')
        initial = query.get("sendInitialEvents")
        return cls(
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            limit=_integer(query, "limit") or 0,
            continue_token=query.get("continue", ""),
            revision=_revision(query.get("resourceVersion", "")),
            match=match,
            allow_bookmarks=_boolean(query.get("allowWatchBookmarks")),
            send_initial_events=None if initial in (None, "") else _boolean(initial),
            timeout_seconds=_integer(query, "timeoutSeconds"),
        )

    def check_list(self) -> None:
        if self.send_initial_events is not None:
            raise _invalid_option("sendInitialEvents", "Forbidden", "sendInitialEvents is forbidden for list")
        if self.match and self.revision is None:
            why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            raise _invalid_option("resourceVersionMatch", "Forbidden", why)
        if self.match == "Exact" and self.revision == 0:
            why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            raise _invalid_option("resourceVersionMatch", "Forbidden", why)
        if self.continue_token and self.match:
            why = "resourceVersionMatch is forbidden when continue is provided"
            raise _invalid_option("resourceVersionMatch", "Forbidden", why)
        if self.continue_token and self.revision:
            raise bad_request("specifying resource version is not allowed when using continue")

    def check_watch(self) -> None:
        if self.send_initial_events is None:
            if self.match:
                why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
                raise _invalid_option("resourceVersionMatch", "Forbidden", why)
            return
        if self.match != "NotOlderThan":
            why = 'sendInitialEvents requires setting resourceVersionMatch to "NotOlderThan"'
            raise _invalid_option("resourceVersionMatch", "Forbidden", why)
        if self.send_initial_events and not self.allow_bookmarks:
            why = "sendInitialEvents requires allowWatchBookmarks"
            raise _invalid_option("sendInitialEvents", "Forbidden", why)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Of every request that writes, with the place where what it warns of is collected."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = ""
    deadline: float | None = None
    """On the monotonic clock; what waits for others past it gives up."""
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, query: Query, now: float) -> WriteOptions:
        """``now`` is on the monotonic clock. Raises ApiError 400 for a timeout that is no duration."""
        return cls(
            dry_run=dry_run(query),
            field_manager=query.get("fieldManager", ""),
            field_validation=query.get("fieldValidation", ""),
            deadline=now + _timeout(query.get("timeout", "")),
        )

    def document(self, kind: str) -> Document:
        """As an object of the API: CreateOptions or UpdateOptions."""
        given = {"fieldManager": self.field_manager, "fieldValidation": self.field_validation}
        named = {name: value for name, value in given.items() if value}
        return {"kind": kind, "apiVersion": _META, **({"dryRun": ["All"]} if self.dry_run else {}), **named}


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """From the body, or where that is empty from the query."""

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    propagation_policy: str = ""

    @classmethod
    def parse(cls, body: Mapping[str, Any] | None, query: Query) -> DeleteOptions:
        if body is None:
            return cls(
                grace_period_seconds=_integer(query, "gracePeriodSeconds"),
                dry_run=dry_run(query),
                propagation_policy=query.get("propagationPolicy", ""),
            )
        preconditions = body.get("preconditions") or {}
        grace = body.get("gracePeriodSeconds")
        if grace is not None and not isinstance(grace, int):
            raise bad_request("gracePeriodSeconds must be a whole number of seconds")
        return cls(
            grace_period_seconds=grace,
            uid=preconditions.get("uid") or "",
            resource_version=preconditions.get("resourceVersion") or "",
            dry_run=bool(body.get("dryRun")) or dry_run(query),
            propagation_policy=body.get("propagationPolicy") or "",
        )

    def document(self) -> Document:
        """As an object of the API."""
        document: Document = {"kind": "DeleteOptions", "apiVersion": _META}
        if self.grace_period_seconds is not None:
            document["gracePeriodSeconds"] = self.grace_period_seconds
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        if any(preconditions.values()):
            document["preconditions"] = {name: value for name, value in preconditions.items() if value}
        if self.propagation_policy:
            document["propagationPolicy"] = self.propagation_policy
        return {**document, "dryRun": ["All"]} if self.dry_run else document


def dry_run(query: Query) -> bool:
    value = query.get("dryRun", "")
    if value not in ("", "All"):
        raise _invalid_option("dryRun", f'Unsupported value: "{value}"', 'supported values: "All"')
    return value == "All"


def _timeout(text: str) -> float:
    """Seconds that a write may take."""
    if not text:
        return _TIMEOUT_SECONDS
    try:
        seconds = parse_duration(text).total_seconds()
    except DurationError as error:
        message = f'invalid timeout specified in the request URL - time: invalid duration "{text}"'
        raise bad_request(message) from error
    return min(seconds, _TIMEOUT_SECONDS) if seconds > 0 else _TIMEOUT_SECONDS


def _integer(query: Query, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _boolean(text: str | None) -> bool:
    return text is not None and text not in ("", "0", "false", "False", "FALSE", "f", "F")


def _revision(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise _invalid_option("resourceVersion", f'Invalid value: "{text}"', "must be a whole number")
    return int(text)


def _invalid_option(field: str, what: str, why: str) -> ApiError:
    message = f"{field}: {what}: {why}"
    return ApiError(422, "Invalid", f"ListOptions.meta.k8s.io is invalid: {message}")
