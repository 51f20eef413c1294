"""Annotations that count as absent are told of, and refuse nothing."""

from __future__ import annotations

import pytest

from koordinator.api.document import Document
from koordinator.manager.webhook.admission import ALLOWED
from tests.manager.webhook.elastic_quota.quota_bench import QuotaBench, changed, quota_request
from tests.model.quota_tree.quota_objects import P, amounts, quota_document

NAMESPACES = f"annotation {P}/namespaces is ignored: "
LIST = 'is not a JSON list such as ["team-a","team-b"]'


def annotated(**annotations: str) -> Document:
    return quota_document("a", max=amounts(1), annotations=annotations)


@pytest.mark.parametrize(
    ("annotations", "warnings"),
    [
        ({"namespaces": "n1"}, [f"{NAMESPACES}'n1' {LIST}"]),
        ({"namespaces": "[1]"}, [f"{NAMESPACES}'[1]' {LIST}"]),
        ({"namespaces": "x" * 100}, [f"{NAMESPACES}'{'x' * 40}' {LIST}"]),
        (
            {"guaranteed": '{"cpu":"much"}'},
            [
                f'annotation {P}/guaranteed is ignored: \'{{"cpu":"much"}}\' is not a JSON object such as '
                '{"cpu":"10","memory":"20Gi"}'
            ],
        ),
        ({"namespaces": '["n1"]', "guaranteed": "null"}, []),
        ({}, []),
    ],
)
def test_what_is_ignored_is_reported(annotations: dict[str, str], warnings: list[str]) -> None:
    bench, new = QuotaBench(), annotated(**annotations)
    response = bench.validating.handle(quota_request("CREATE", new))
    assert response.allowed
    assert response.warnings == (warnings or ())
    bench.observe(new)
    again = bench.validating.handle(quota_request("UPDATE", changed(new, max=amounts(2)), new))
    assert again.warnings == response.warnings


def test_whoever_changes_something_else_is_not_told_again() -> None:
    old = annotated(namespaces="n1")
    bench = QuotaBench()
    bench.observe(old)
    assert bench.validating.handle(quota_request("UPDATE", changed(old, {"team": "x"}), old)) is ALLOWED
