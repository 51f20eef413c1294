"""Labels that put a node under two strategies: the cases of the original's own tests, and what is told."""

from __future__ import annotations

import json

import pytest

from koordinator.api.codec import DecodeError
from koordinator.manager.webhook.admission import ALLOWED, AdmissionRequest
from koordinator.manager.webhook.node.validating import NodeValidatingHandler
from koordinator.model.slo_configuration.refusal import RefusedConfigurationError
from tests.manager.webhook.node.node_reviews import about, node
from tests.manager.webhook.slo_documents import BROKEN, COLOCATION, PLAIN

GROUPS = {
    "nodeConfigs": [
        {"name": "x", "nodeSelector": {"matchLabels": {"xxx": "xxx"}}, "enable": True},
        {"name": "y", "nodeSelector": {"matchLabels": {"yyy": "yyy"}}, "enable": True},
    ]
}
WITHOUT_GROUPS = {**PLAIN, "colocation-config": json.dumps(COLOCATION)}
WITH_GROUPS = {**PLAIN, "colocation-config": json.dumps({**COLOCATION, **GROUPS})}
BOTH = {"xxx": "xxx", "yyy": "yyy"}
CONFLICT = (
    '___{"reason":"ExistNodeConfict","message":'
    '{"config":"colocation-config","strategies":["x","y"],"exampleNodes":["test-node0"]}}___'
)


def errors_of(data: dict[str, str] | None, request: AdmissionRequest) -> list[str]:
    """The warnings of a response that allows."""
    response = NodeValidatingHandler(lambda: data).handle(request)
    assert response.allowed
    assert response.changed is None
    return list(response.warnings)


@pytest.mark.parametrize(
    ("data", "old", "new"),
    [
        (BROKEN, {}, {"xxx": "xxx"}),
        (PLAIN, {}, {"xxx": "xxx"}),
        (WITHOUT_GROUPS, {}, {"xxx": "xxx"}),
        ({key: text for key, text in WITHOUT_GROUPS.items() if key != "cpu-burst-config"}, {}, {"xxx": "xxx"}),
        (WITH_GROUPS, {}, {"xxx": "xxx"}),
        (WITH_GROUPS, BOTH, BOTH),
        (None, {}, BOTH),
        ({}, {}, BOTH),
    ],
)
def test_changes_that_pass(data: dict[str, str] | None, old: dict[str, str], new: dict[str, str]) -> None:
    assert errors_of(data, about(node(new), node(old))) == []


@pytest.mark.parametrize("more", [{}, {"cpu-burst-config": "invalid_content"}, {"cpu-burst-config": ""}])
def test_a_change_that_puts_a_node_under_two_strategies_is_refused(more: dict[str, str]) -> None:
    handler = NodeValidatingHandler(lambda: {**WITH_GROUPS, **more})
    with pytest.raises(RefusedConfigurationError) as refusal:
        handler.handle(about(node(BOTH), node({})))
    assert str(refusal.value) == CONFLICT


def test_a_new_node_is_let_in_with_a_warning() -> None:
    warnings = errors_of(WITH_GROUPS, about(node(BOTH), operation="CREATE"))
    assert warnings == [f"more than one strategy of the SLO ConfigMap is for this node: {CONFLICT}"]


def test_a_new_node_of_one_strategy_is_let_in() -> None:
    assert errors_of(WITH_GROUPS, about(node({"xxx": "xxx"}), operation="CREATE")) == []


def test_the_configuration_is_read_only_when_labels_changed() -> None:
    def unexpected() -> dict[str, str]:
        raise AssertionError("nothing changed")

    assert NodeValidatingHandler(unexpected).handle(about(node(BOTH, phase="new"), node(BOTH))) is ALLOWED


@pytest.mark.parametrize(
    "request_",
    [
        about(node(BOTH), node({}), sub_resource="status"),
        about(node(BOTH), operation="DELETE"),
        AdmissionRequest("UPDATE", "", "v1", "pods", object=node(BOTH), old_object=node({})),
    ],
)
def test_other_requests_pass(request_: AdmissionRequest) -> None:
    assert NodeValidatingHandler(lambda: WITH_GROUPS).handle(request_) is ALLOWED


def test_a_question_without_a_node_cannot_be_answered() -> None:
    with pytest.raises(DecodeError, match="no content"):
        NodeValidatingHandler(lambda: WITH_GROUPS).handle(about({}))
