from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.cluster.strategy.custom import CustomResourceStrategy
from koordinator.cluster.strategy.custom_columns import find
from tests.cluster.corpus import NOW, context

COLUMNS: list[Document] = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
CRD: Document = {
    "spec": {
        "scope": "Namespaced",
        "versions": [
            {"name": "v1", "subresources": {"status": {}}, "additionalPrinterColumns": COLUMNS},
            {"name": "v2"},
        ],
    }
}
WITH_STATUS = CustomResourceStrategy(CRD, "v1")
WITHOUT_STATUS = CustomResourceStrategy(CRD, "v2")


def _object(**parts: Any) -> Document:
    metadata = {"name": "n", "namespace": "d", "creationTimestamp": "2025-12-31T23:59:00Z", "generation": 1}
    return {"apiVersion": "e/v1", "kind": "K", "metadata": metadata, **parts}


def test_row() -> None:
    status = {"phase": "Ok", "conditions": [{"type": "X", "status": "?"}, {"type": "Ready", "status": "True"}]}
    assert WITH_STATUS.row(_object(status=status, spec={"replicas": 3}), NOW) == ["n", "Ok", "True", 3, "60s"]


def test_absent_cells_are_null() -> None:
    assert WITH_STATUS.row(_object(), NOW)[1:4] == [None, None, None]


def test_without_columns_name_and_age() -> None:
    assert WITHOUT_STATUS.row(_object(), NOW) == ["n", "60s"]


def test_create_drops_status_where_it_is_a_subresource() -> None:
    obj = _object(status={"a": 1})
    WITH_STATUS.prepare_create(obj, context())
    assert "status" not in obj


def test_create_keeps_status_otherwise() -> None:
    obj = _object(status={"a": 1})
    WITHOUT_STATUS.prepare_create(obj, context())
    assert obj["status"] == {"a": 1}


def test_update_keeps_the_stored_status() -> None:
    obj = _object(status={"a": 2})
    WITH_STATUS.prepare_update(obj, _object(status={"a": 1}), context())
    assert obj["status"] == {"a": 1}


@pytest.mark.parametrize(
    ("strategy", "change", "generation"),
    [
        (WITH_STATUS, {"spec": {"a": 1}}, 2),
        (WITH_STATUS, {"status": {"a": 1}}, 1),
        (WITHOUT_STATUS, {"status": {"a": 1}}, 2),
        (WITH_STATUS, {"other": 1}, 2),
    ],
)
def test_generation(strategy: CustomResourceStrategy, change: Document, generation: int) -> None:
    obj = _object(**change)
    strategy.prepare_update(obj, _object(), context())
    assert obj["metadata"]["generation"] == generation


def test_status_update_takes_over_status_alone() -> None:
    obj = _object(status={"a": 2}, spec={"a": 2})
    obj["metadata"]["labels"] = {"x": "y"}
    WITH_STATUS.prepare_status_update(obj, _object(spec={"a": 1}), context())
    assert obj == _object(status={"a": 2}, spec={"a": 1})


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        (".list[0].x", [1]),
        (".list[*].x", [1, 2]),
        (".list[-1].x", [2]),
        (".list[5].x", []),
        (".labels['a.b/c']", ["v"]),
        (r".labels['a\.b/c']", ["v"]),
        (".nothing.here", []),
        (".a[0]", []),
        ("not(a)path", []),
        (r".labels.a\.b/c", ["v"]),
    ],
)
def test_json_path(path: str, found: list[Any]) -> None:
    obj = {"a": {"b": 1}, "list": [{"x": 1}, {"x": 2}], "labels": {"a.b/c": "v"}}
    assert find(obj, path) == found


def test_a_column_shows_the_first_of_several_values() -> None:
    definition = {
        "spec": {
            "versions": [
                {"name": "v1", "additionalPrinterColumns": [{"name": "X", "type": "string", "jsonPath": ".list[*].x"}]}
            ]
        }
    }
    obj = {"metadata": {"name": "a"}, "list": [{"x": "one"}, {"x": "two"}]}
    assert CustomResourceStrategy(definition, "v1").row(obj, NOW) == ["a", "one"]
