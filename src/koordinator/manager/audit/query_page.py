"""The HTTP endpoint of the audit: a query in, a page of records out."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from koordinator.api.audit_answer import AuditAnswer
from koordinator.api.modification import ACTIONS
from koordinator.kube.pages import Handler, Request, Response, json_response
from koordinator.manager.audit.store import Query

_MOST: Final = 1000
"""Records of a page."""
_LONGEST: Final = 512
_POSITION: Final = re.compile(r"(-?\d{1,17})\.(\d{1,17})")
_TEXTS: Final = ("pod", "uid", "namespace", "node", "program", "action", "cause")
_PARAMETERS: Final = (*_TEXTS, "since", "until", "limit", "next")


class QueryError(ValueError):
    """A parameter that cannot be used; the text names it and says what is allowed."""


def audit_page(find: Callable[[Query], Awaitable[AuditAnswer | None]]) -> Handler:
    """The handler of AUDIT_PATH. ``find`` returns None where this replica does not lead."""

    async def handle(request: Request) -> Response:
        try:
            query = parse_query(request.query)
        except QueryError as error:
            return json_response({"message": str(error)}, 400)
        answer = await find(query)
        if answer is None:
            return json_response({"message": "the audit is kept by the replica that leads, which is another one"}, 503)
        return json_response(answer)

    return handle


def parse_query(given: Mapping[str, str]) -> Query:
    """Raises QueryError."""
    for name, value in given.items():
        if name not in _PARAMETERS:
            raise QueryError(f"{name}: there is no such parameter, there are {', '.join(_PARAMETERS)}")
        if len(value) > _LONGEST:
            raise QueryError(f"{name}: at most {_LONGEST} characters are allowed")
    texts = {name: given[name] for name in _TEXTS if name in given}
    if (pod := texts.get("pod")) and not all(pod.partition("/")):
        raise QueryError(f"pod: {pod!r} is not NAMESPACE/NAME")
    if (action := texts.get("action")) and action not in ACTIONS:
        raise QueryError(f"action: {action!r} is not one of {', '.join(ACTIONS)}")
    fields: dict[str, Any] = {**texts}
    fields |= {name: _moment(name, given[name]) for name in ("since", "until") if name in given}
    if "limit" in given:
        fields["limit"] = _limit(given["limit"])
    if "next" in given:
        fields["before"] = _position(given["next"])
    return Query(**fields)


def _moment(name: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise QueryError(f"{name}: {text!r} is not a time such as 2026-01-31T12:00:00Z") from error


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and 1 <= int(text) <= _MOST):
        raise QueryError(f"limit: {text!r} is not a number from 1 to {_MOST}")
    return int(text)


def _position(text: str) -> tuple[int, int]:
    found = _POSITION.fullmatch(text)
    if found is None:
        raise QueryError(f"next: {text!r} is not what the last page had as its next")
    return int(found[1]), int(found[2])
