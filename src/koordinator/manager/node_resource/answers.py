"""The HTTP answer to why a node offers what it offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from koordinator.api.codec import to_document
from koordinator.api.timestamps import format_time
from koordinator.kube.serving import Handler, json_response
from koordinator.manager.node_resource.explanations import NodeExplanation
from koordinator.model.overcommit.abnormality import NodeHealth
from koordinator.model.overcommit.explained_sum import ExplainedAmount, sentence

PATH: Final = "/explain/node/{name}"


def explain_handler(explain: Callable[[str], NodeExplanation | None]) -> Handler:
    """Answers PATH with JSON; 404 with a message where nothing is known. ``explain``: a node's name -> why it offers
    what it does."""

    async def handle(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        explanation = explain(name)
        if explanation is None:
            text = f"nothing is known of node {name!r} here: it does not exist, or another replica leads"
            return json_response({"message": text}, 404)
        return json_response(explanation_document(name, explanation))

    return handle


def explanation_document(name: str, explanation: NodeExplanation) -> dict[str, Any]:
    """For JSON."""
    return {
        "node": name,
        "at": format_time(explanation.at),
        "amounts": [_amount(each) for each in explanation.amounts],
        "zones": [_amount(each) for each in explanation.zones],
        **_health(explanation.health),
        "problems": list(explanation.problems),
        "written": explanation.written,
    }


def _health(health: NodeHealth | None) -> dict[str, Any]:
    """What is wrong, since when, and since when nothing has been any more."""
    if health is None:
        return {"abnormal": []}
    found = [{"reason": each.code, "message": each.message} for each in health.findings]
    document: dict[str, Any] = {"abnormal": found, "abnormalSince": format_time(health.changed_at)}
    if health.well_since is not None:
        document["soundSince"] = format_time(health.well_since)
    return document


def _amount(amount: ExplainedAmount) -> dict[str, Any]:
    document: dict[str, Any] = to_document(amount)
    for part in ("addends", "adjustments"):
        document[part] = [{"name": each.name, "amount": each.amount} for each in getattr(amount, part)]
    return document | {"value": amount.value, "sentence": sentence(amount)}
