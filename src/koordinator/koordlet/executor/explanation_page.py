"""``/enforcement``: for every kernel file with a wish, the wishes, the one that won, and what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from koordinator.koordlet.executor.executor import Executor
from koordinator.koordlet.executor.wishes import Explanation, Wish

if TYPE_CHECKING:
    from aiohttp import web


def handler(executor: Callable[[], Executor | None]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Serves one JSON document a line, those of ``?path=`` alone if it is given."""
    # Loaded by the server that this handler is for, and by nothing before.
    from aiohttp import web

    async def handle(request: web.Request) -> web.StreamResponse:
        present = executor()
        if present is None:
            return web.Response(status=503, text="where the cgroups are is not known yet\n")
        part = request.query.get("path", "")
        documents = [document(each) for each in present.explanations() if part in each.path]
        documents += [_wish(wish) | {"outcome": why} for wish, why in present.invalid_wishes.items()]
        body = b"".join(msgspec.json.encode(each) + b"\n" for each in documents)
        return web.Response(body=body, headers={"Content-Type": "application/x-ndjson"})

    return handle


def document(explanation: Explanation) -> dict[str, Any]:
    """What one line says."""
    setting = explanation.setting
    return {
        "path": explanation.path,
        "part": setting.target.part,
        "value": _value(setting.value),
        "outcome": explanation.outcome.value,
        "detail": explanation.detail,
        "failures": explanation.failures,
        "owners": list(setting.owners),
        "reason": setting.winner.reason,
        "limitedBy": setting.limited_by,
        "lost": [_wish(lost.wish) | {"why": lost.why} for lost in setting.lost],
    }


def _wish(wish: Wish) -> dict[str, Any]:
    return {
        "owner": wish.owner,
        "target": str(wish.target),
        "value": _value(wish.value),
        "reason": wish.reason,
        "priority": wish.priority.name.lower(),
    }


def _value(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value
