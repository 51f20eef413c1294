"""How the amounts of each node were computed: the last plan of every node, and the HTTP endpoint that serves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from msgspec import Struct

from koordinator.api.adaptive_slo import AdaptiveSLOState
from koordinator.api.codec import convert, to_document
from koordinator.api.node_explanation import Abnormality, Adaptation, Amount, LoweredValue, OvercommitExplanation
from koordinator.api.timestamps import format_time
from koordinator.kube.pages import Handler, Request, Response, json_response
from koordinator.model.overcommit.abnormality import NodeHealth
from koordinator.model.overcommit.amounts import ExplainedAmount, sentence
from koordinator.model.slo_adaptation import Lowered

PATH: Final = "/explain/node/{name}"


class NodeExplanation(Struct, frozen=True):
    """The explanation of one node's last plan."""

    at: datetime
    amounts: tuple[ExplainedAmount, ...]
    health: NodeHealth | None = None
    """Why and since when the node is abnormal; None while it is normal."""
    problems: tuple[str, ...] = ()
    """The parts of the node's configuration that could not be used."""
    written: str = ""
    """Why the node's status was due to be written with this plan; empty when it was not due."""
    zones: tuple[ExplainedAmount, ...] = ()
    """Batch amounts of each zone; computed for each request of the endpoint, since they are many."""
    adaptation: AdaptiveSLOState | None = None
    """How far co-location is taken back; None where the node has never been adapted."""
    lowered: tuple[Lowered, ...] = ()
    """What the adaptation lowers; computed for each request as well."""
    back_at: datetime | None = None
    """When one step of the adaptation is taken back, at the earliest."""


class Explanations:
    """The last explanation of every existing node."""

    def __init__(self) -> None:
        self._by_node: dict[str, NodeExplanation] = {}

    def put(self, node: str, explanation: NodeExplanation) -> None:
        self._by_node[node] = explanation

    def forget(self, node: str) -> None:
        self._by_node.pop(node, None)

    def clear(self) -> None:
        self._by_node.clear()

    def of(self, node: str) -> NodeExplanation | None:
        return self._by_node.get(node)

    def __iter__(self) -> Iterator[tuple[str, NodeExplanation]]:
        return iter(list(self._by_node.items()))


def explain_handler(explain: Callable[[str], NodeExplanation | None]) -> Handler:
    """The handler of PATH: responds with JSON, or 404 with a message where the node has no explanation. ``explain``
    maps a node's name to its explanation."""

    async def handle(request: Request) -> Response:
        name = request.parameters["name"]
        explanation = explain(name)
        if explanation is None:
            text = f"nothing is known of node {name!r} here: it does not exist, or another replica leads"
            return json_response({"message": text}, 404)
        return json_response(explanation_document(name, explanation))

    return handle


def explanation_document(name: str, explanation: NodeExplanation) -> OvercommitExplanation:
    """The explanation as it is served."""
    health = explanation.health
    return OvercommitExplanation(
        node=name,
        at=format_time(explanation.at),
        amounts=[_amount(each) for each in explanation.amounts],
        zones=[_amount(each) for each in explanation.zones],
        abnormal=[Abnormality(reason=each.code, message=each.message) for each in (health.findings if health else ())],
        abnormal_since=format_time(health.changed_at) if health else None,
        sound_since=format_time(health.well_since) if health and health.well_since is not None else None,
        adaptation=_adaptation(explanation),
        problems=list(explanation.problems),
        written=explanation.written,
    )


def _adaptation(explanation: NodeExplanation) -> Adaptation | None:
    state = explanation.adaptation
    if state is None:
        return None
    return Adaptation(
        level=state.level,
        steps=state.steps,
        since=format_time(state.since) if state.since is not None else "",
        reason=state.reason,
        back_at=format_time(explanation.back_at) if explanation.back_at is not None else None,
        lowered=[
            LoweredValue(name=each.name, configured=each.configured, now=each.now) for each in explanation.lowered
        ],
    )


def _amount(amount: ExplainedAmount) -> Amount:
    document = to_document(amount)
    for key, terms in (("terms", amount.terms), ("adjustments", amount.adjustments)):
        document[key] = [{"name": each.name, "amount": each.amount} for each in terms]
    return convert(document | {"value": amount.value, "sentence": sentence(amount)}, Amount)
