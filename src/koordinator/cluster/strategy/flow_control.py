"""FlowSchemas and PriorityLevelConfigurations: defaults, what they must say, tables.

They are stored, and nothing here acts on them: too many requests are refused by limits that are the server's own.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.api.names import dns_subdomain
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid, not_supported
from koordinator.cluster.strategy.causes import required as missing
from koordinator.cluster.strategy.object_strategy import defaults_of
from koordinator.cluster.strategy.rules import Rules, at_least, between, one_of, required, required_name
from koordinator.cluster.strategy.table import AGE, NAME, NONE, computed, lookup, table, text

_TYPES: Final = "io.k8s.api.flowcontrol.v1."
_EXEMPT: Final = "exempt"
_MOST_PRECEDENCE: Final = 10_000
_MOST_QUEUES: Final = 10_000_000
_NOT_NEGATIVE: Final = at_least(0, "must be a non-negative integer")
_PERCENT: Final = Rules(("lendablePercent", between(0, 100)), ("nominalConcurrencyShares", _NOT_NEGATIVE))
_VERBS: Final = required("verbs must contain at least one value")


@defaults_of(f"{_TYPES}FlowSchemaSpec")
def _flow_schema(spec: Document) -> None:
    spec["matchingPrecedence"] = spec.get("matchingPrecedence") or 1000


@defaults_of(f"{_TYPES}ExemptPriorityLevelConfiguration")
def _exempt(level: Document) -> None:
    _set_defaults(level, nominalConcurrencyShares=0, lendablePercent=0)


@defaults_of(f"{_TYPES}LimitedPriorityLevelConfiguration")
def _limited(level: Document) -> None:
    _set_defaults(level, nominalConcurrencyShares=30, lendablePercent=0)


@defaults_of(f"{_TYPES}QueuingConfiguration")
def _queuing(queuing: Document) -> None:
    for name, default in (("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)):
        queuing[name] = queuing.get(name) or default


def _set_defaults(holder: Document, **defaults: int) -> None:
    for name, default in defaults.items():
        if holder.get(name) is None:
            holder[name] = default


_FLOW_SCHEMA: Final = Rules(
    ("spec.distinguisherMethod.type", one_of("ByNamespace", "ByUser")),
    ("spec.priorityLevelConfiguration.name", required_name(dns_subdomain, "must reference a priority level")),
    ("spec.rules[].subjects", required("subjects must contain at least one value")),
    ("spec.rules[].subjects[].kind", one_of("Group", "ServiceAccount", "User")),
    ("spec.rules[].resourceRules[].verbs", _VERBS),
    ("spec.rules[].resourceRules[].apiGroups", required("resource rules must supply at least one api group")),
    ("spec.rules[].resourceRules[].resources", required("resource rules must supply at least one resource")),
    ("spec.rules[].nonResourceRules[].verbs", _VERBS),
    (
        "spec.rules[].nonResourceRules[].nonResourceURLs",
        required("nonResourceURLs must contain at least one value"),
    ),
)


def flow_schema(obj: Document, old: Document | None) -> list[Cause]:
    spec, causes = obj["spec"], []
    precedence, field = spec["matchingPrecedence"], "spec.matchingPrecedence"
    if precedence <= 0:
        causes.append(invalid(field, precedence, "must be a positive value"))
    if precedence > _MOST_PRECEDENCE:
        causes.append(invalid(field, precedence, f"must not be greater than {_MOST_PRECEDENCE}"))
    if precedence == 1 and obj["metadata"].get("name") != _EXEMPT:
        causes.append(invalid(field, precedence, "only the schema named 'exempt' may have matchingPrecedence 1"))
    causes += _FLOW_SCHEMA.check(obj)
    for index, rule in enumerate(spec.get("rules") or ()):
        if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
            why = "at least one of resourceRules and nonResourceRules has to be non-empty"
            causes.append(missing(f"spec.rules[{index}]", why))
    return causes


def priority_level(obj: Document, old: Document | None) -> list[Cause]:
    spec, causes = obj["spec"], []
    kind = spec.get("type") or ""
    if (obj["metadata"].get("name") == _EXEMPT) != (kind == "Exempt"):
        causes.append(invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'"))
    if kind == "Exempt":
        return causes + _exempt_level(spec)
    if kind == "Limited":
        return causes + _limited_level(spec)
    return [*causes, not_supported("spec.type", kind, ("Exempt", "Limited"))]


def _exempt_level(spec: Document) -> list[Cause]:
    causes = _PERCENT.check(spec.get("exempt"), "spec.exempt") if spec.get("exempt") else []
    if spec.get("limited") is not None:
        causes.append(forbidden("spec.limited", "must be nil if the type is not Limited"))
    return causes


def _limited_level(spec: Document) -> list[Cause]:
    causes: list[Cause] = []
    if spec.get("exempt") is not None:
        causes.append(forbidden("spec.exempt", "must be nil if the type is Limited"))
    limited = spec.get("limited")
    if limited is None:
        return [*causes, missing("spec.limited", "must not be empty when type is Limited")]
    return causes + _PERCENT.check(limited, "spec.limited") + _limit_response(limited.get("limitResponse") or {})


def _limit_response(response: Document) -> list[Cause]:
    field, queuing, kind = "spec.limited.limitResponse", response.get("queuing"), response.get("type") or ""
    if kind == "Reject":
        why = "must be nil if limited.limitResponse.type is not Limited"
        return [forbidden(f"{field}.queuing", why)] if queuing is not None else []
    if kind != "Queue":
        return [not_supported(f"{field}.type", kind, ("Queue", "Reject"))]
    if queuing is None:
        return [missing(f"{field}.queuing", "must not be empty if limited.limitResponse.type is Limited")]
    return _queues(queuing, f"{field}.queuing")


def _queues(queuing: Document, field: str) -> list[Cause]:
    causes = [
        invalid(f"{field}.{name}", queuing[name], "must be positive")
        for name in ("queueLengthLimit", "queues", "handSize")
        if queuing[name] <= 0
    ]
    if queuing["queues"] > _MOST_QUEUES:
        causes.append(invalid(f"{field}.queues", queuing["queues"], f"must not be greater than {_MOST_QUEUES}"))
    if queuing["handSize"] > queuing["queues"]:
        why = f"should not be greater than queues ({queuing['queues']})"
        causes.append(invalid(f"{field}.handSize", queuing["handSize"], why))
    return causes


def _dangling(obj: Document) -> str:
    conditions = lookup(obj, ("status", "conditions")) or []
    return next((each.get("status") or "" for each in conditions if each.get("type") == "Dangling"), "?")


FLOW_SCHEMA: Final = table(
    NAME,
    text("PriorityLevel", "spec.priorityLevelConfiguration.name"),
    computed("MatchingPrecedence", lambda obj: obj["spec"]["matchingPrecedence"]),
    computed("DistinguisherMethod", lambda obj: lookup(obj, ("spec", "distinguisherMethod", "type")) or NONE),
    AGE,
    computed("MissingPL", _dangling),
)


def _of_queues(name: str) -> tuple[str, ...]:
    return ("spec", "limited", "limitResponse", "queuing", name)


def _or_none(obj: Document, path: tuple[str, ...]) -> object:
    value = lookup(obj, path)
    return NONE if value is None else value


PRIORITY_LEVEL: Final = table(
    NAME,
    text("Type", "spec.type"),
    computed("NominalConcurrencyShares", lambda obj: _or_none(obj, ("spec", "limited", "nominalConcurrencyShares"))),
    computed("Queues", lambda obj: _or_none(obj, _of_queues("queues"))),
    computed("HandSize", lambda obj: _or_none(obj, _of_queues("handSize"))),
    computed("QueueLengthLimit", lambda obj: _or_none(obj, _of_queues("queueLengthLimit"))),
    AGE,
)
