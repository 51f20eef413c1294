"""FlowSchemas and PriorityLevelConfigurations."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.cluster.strategy.flow_control import flow_schema, priority_level

_SUBJECTS = [{"kind": "User", "user": {"name": "a"}}]
_URLS = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
_RESPONSE = {"type": "Queue", "queuing": {"handSize": 8, "queues": 64, "queueLengthLimit": 50}}


def _schema(**spec: Any) -> Document:
    whole = {
        "matchingPrecedence": 1000,
        "priorityLevelConfiguration": {"name": "a"},
        "rules": [{"subjects": _SUBJECTS, "nonResourceRules": _URLS}],
        **spec,
    }
    return {"metadata": {"name": "a"}, "spec": whole}


def _level(name: str = "a", **spec: Any) -> Document:
    return {"metadata": {"name": name}, "spec": spec}


def test_what_is_in_order() -> None:
    assert flow_schema(_schema(distinguisherMethod={"type": "ByUser"}), None) == []
    assert priority_level(_level(type="Limited", limited={"limitResponse": _RESPONSE}), None) == []
    assert priority_level(_level("exempt", type="Exempt", exempt={"lendablePercent": 0}), None) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"matchingPrecedence": -1}, "spec.matchingPrecedence"),
        ({"matchingPrecedence": 10001}, "spec.matchingPrecedence"),
        ({"matchingPrecedence": 1}, "spec.matchingPrecedence"),
        ({"distinguisherMethod": {"type": "x"}}, "spec.distinguisherMethod.type"),
        ({"priorityLevelConfiguration": {}}, "spec.priorityLevelConfiguration.name"),
        ({"rules": [{"nonResourceRules": _URLS}]}, "spec.rules[0].subjects"),
        ({"rules": [{"subjects": _SUBJECTS}]}, "spec.rules[0]"),
        ({"rules": [{"subjects": [{"kind": "x"}], "nonResourceRules": _URLS}]}, "spec.rules[0].subjects[0].kind"),
    ],
)
def test_schemas_that_are_refused(spec: Document, field: str) -> None:
    assert [cause.field for cause in flow_schema(_schema(**spec), None)] == [field]


@pytest.mark.parametrize(
    ("level", "field"),
    [
        (_level(type="x"), "spec.type"),
        (_level(type="Exempt"), "spec.type"),
        (_level(type="Limited"), "spec.limited"),
        (_level("exempt", type="Exempt", limited={}), "spec.limited"),
        (_level(type="Limited", exempt={}, limited={"limitResponse": _RESPONSE}), "spec.exempt"),
        (_level(type="Limited", limited={}), "spec.limited.limitResponse.type"),
        (_level(type="Limited", limited={"limitResponse": {"type": "Queue"}}), "spec.limited.limitResponse.queuing"),
        (
            _level(type="Limited", limited={"limitResponse": {**_RESPONSE, "type": "Reject"}}),
            "spec.limited.limitResponse.queuing",
        ),
        (
            _level(type="Limited", limited={"lendablePercent": 101, "limitResponse": _RESPONSE}),
            "spec.limited.lendablePercent",
        ),
        (
            _level(
                type="Limited",
                limited={
                    "limitResponse": {
                        "type": "Queue",
                        "queuing": {"handSize": 8, "queues": 4, "queueLengthLimit": 1},
                    }
                },
            ),
            "spec.limited.limitResponse.queuing.handSize",
        ),
    ],
)
def test_levels_that_are_refused(level: Document, field: str) -> None:
    assert [cause.field for cause in priority_level(level, None)] == [field]
