"""Every kind gets the defaults and the canonical form that the real server gives it."""

from __future__ import annotations

import copy
import json

import pytest

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, invalid
from tests.cluster.corpus import admitted, comparable, context, in_namespace, recorded, resource_of, written

OBJECTS = list(zip(written("strategy/objects.yaml"), recorded("strategy/objects.json"), strict=True))
INVALID = list(zip(written("strategy/invalid.yaml"), recorded("strategy/invalid.json"), strict=True))


def _id(value: object) -> str:
    return f"{value['kind']}-{value['metadata']['name']}" if isinstance(value, dict) and "metadata" in value else ""


def _created(given: Document, real: Document) -> Document:
    created = in_namespace(copy.deepcopy(given))
    if created["kind"] == "Job":
        created["metadata"]["uid"] = real["metadata"]["uid"]
    resource_of(created).strategy.decode(created)
    return admitted(created)


@pytest.mark.parametrize(("given", "real"), OBJECTS, ids=_id)
def test_created_object(given: Document, real: Document) -> None:
    assert comparable(_created(given, real)) == comparable(real)


@pytest.mark.parametrize(("given", "real"), OBJECTS, ids=_id)
def test_created_object_is_valid(given: Document, real: Document) -> None:
    created = _created(given, real)
    assert resource_of(created).strategy.validate(created, None) == []


@pytest.mark.parametrize(("given", "real"), OBJECTS, ids=_id)
def test_update_without_change_changes_nothing(given: Document, real: Document) -> None:
    """Defaults are stable: what was stored once stays as it is, and so does its generation."""
    stored = _created(given, real)
    updated = copy.deepcopy(stored)
    admitted(updated, copy.deepcopy(stored))
    assert updated == stored
    assert resource_of(stored).strategy.validate(updated, stored) == []


@pytest.mark.parametrize(("given", "real"), OBJECTS, ids=_id)
def test_status_update_without_change_changes_nothing(given: Document, real: Document) -> None:
    stored = _created(given, real)
    updated = copy.deepcopy(stored)
    resource_of(stored).strategy.prepare_status_update(updated, copy.deepcopy(stored), context())
    assert updated == stored


@pytest.mark.parametrize(("given", "real"), OBJECTS, ids=_id)
def test_row_has_one_cell_for_each_column(given: Document, real: Document) -> None:
    created = _created(given, real)
    strategy = resource_of(created).strategy
    assert len(strategy.row(created, context().now)) == len(strategy.columns())


@pytest.mark.parametrize(("given", "real"), INVALID, ids=lambda value: str(value.get("message", ""))[:60])
def test_refusal(given: Document, real: Document) -> None:
    resource = resource_of(given)
    in_namespace(given := copy.deepcopy(given))
    try:
        resource.strategy.decode(given)
        admitted(given)
        status = invalid(resource, given["metadata"]["name"], resource.strategy.validate(given, None)).status()
    except ApiError as error:
        status = error.status()
    assert (status["code"], status["reason"], status["message"]) == (real["code"], real["reason"], real["message"])


def test_unknown_fields_survive() -> None:
    pod = in_namespace(
        json.loads(
            '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","future":{"x":1}}],"new":[1]}}'
        )
    )
    resource_of(pod).strategy.decode(pod)
    admitted(pod)
    assert pod["spec"]["new"] == [1]
    assert pod["spec"]["containers"][0]["future"] == {"x": 1}
