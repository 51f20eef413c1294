"""Objects that are older than their schema are refreshed when they are read, and only those."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from koordinator.api.document import Document
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.strategy.custom import CustomSchema
from koordinator.cluster.structural_schema.stored_form import StoredForm
from koordinator.cluster.verbs.target import current
from tests.cluster.corpus import RESOURCES


def _schema(**fields: Document) -> CustomSchema:
    return CustomSchema({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}})


def _stored(revision: int, **spec: object) -> Stored:
    return Stored("/g/things/a", msgspec.json.encode({"metadata": {"name": "a"}, "spec": spec}), revision)


WITH_DEFAULT = _schema(a={"type": "string", "default": "x"}, b={"type": "string"})


def _spec(stored: Stored) -> object:
    return msgspec.json.decode(stored.value)["spec"]


def test_a_younger_object_is_passed_on_as_it_is() -> None:
    stored = _stored(6, unknown=1)
    resource = replace(RESOURCES["v1", "Pod"], current=StoredForm(WITH_DEFAULT, None, 5))
    assert current(resource, stored) is stored


def test_what_a_dry_run_made_is_passed_on_as_it_is() -> None:
    stored = _stored(0, unknown=1)
    assert StoredForm(WITH_DEFAULT, None, None)(stored) is stored


def test_an_older_object_is_pruned_and_gets_defaults() -> None:
    shown = StoredForm(WITH_DEFAULT, None, 5)(_stored(5, b="y", c="z"))
    assert (_spec(shown), shown.revision) == ({"b": "y", "a": "x"}, 5)


@pytest.mark.parametrize("spec", [{"a": "x"}, {"b": "y"}])
def test_an_older_object_is_refreshed_once(spec: dict[str, object]) -> None:
    form, stored = StoredForm(WITH_DEFAULT, None, 5), _stored(5, **spec)
    assert form(stored).value is form(stored).value


def test_an_object_that_fits_is_not_kept_twice() -> None:
    stored = _stored(5, a="x", b="y")
    assert StoredForm(WITH_DEFAULT, None, 5)(stored).value is stored.value


def test_another_version_shows_what_both_know() -> None:
    form = StoredForm(WITH_DEFAULT, _schema(b={"type": "string"}), None)
    assert _spec(form(_stored(9, b="y"))) == {"b": "y"}
