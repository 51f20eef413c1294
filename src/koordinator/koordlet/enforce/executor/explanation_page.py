"""``/enforcement``: for every kernel file with a setting: what was desired, what won, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Explanation
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.kube.pages import Handler, Request, Response


def handler(executor: Callable[[], Executor | None]) -> Handler:
    """Serves one JSON document a line, those of ``?path=`` alone if it is given."""

    async def handle(request: Request) -> Response:
        present = executor()
        if present is None:
            return Response(status=503, text="where the cgroups are is not known yet\n")
        part = request.query.get("path", "")
        documents = [document(each) for each in present.explanations() if part in each.path]
        documents += [_desired(each) | {"outcome": why} for each, why in present.invalid_settings.items()]
        body = b"".join(msgspec.json.encode(each) + b"\n" for each in documents)
        return Response(body=body, content_type="application/x-ndjson")

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
        "lost": [_desired(each.desired) | {"why": each.why} for each in setting.overridden],
    }


def _desired(desired: DesiredSetting) -> dict[str, Any]:
    return {
        "owner": desired.owner,
        "target": str(desired.target),
        "value": _value(desired.value),
        "reason": desired.reason,
        "priority": desired.priority.name.lower(),
    }


def _value(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value
