"""Invariants of ownership over random objects, and what becomes of the managers that a request brings along."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document, copied
from koordinator.cluster.custom_resources import resources_of
from koordinator.cluster.errors import ApiError
from koordinator.cluster.managed_fields.applied import applied
from koordinator.cluster.managed_fields.field_manager import FieldManager, keep_readable, keep_times
from koordinator.cluster.managed_fields.field_set import intersection
from koordinator.cluster.resource import Registry
from tests.cluster.managed_fields.sequences import DEFINITION, Gadgets

_RESOURCES = list(resources_of(DEFINITION))
_RESOURCE = _RESOURCES[0]
_REGISTRY = Registry(_RESOURCES)
_KIND = Gadgets()
_THEN = "2026-01-01T00:00:00Z"
_NOW = "2026-01-02T00:00:00Z"
_RANDOM = st.randoms(use_true_random=False)


def _manager(name: str, now: str = _NOW) -> FieldManager:
    return FieldManager(_REGISTRY, _RESOURCE, "", name, now)


def _config(random: Random) -> Document:
    return {"apiVersion": _RESOURCE.api_version, "kind": "Gadget", "metadata": {"name": "x"}, **_KIND.body(random)}


def _apply(name: str, live: Document | None, config: Document, *, now: str = _NOW) -> Document:
    obj = applied(_manager(name, now), live, copied(config), force=True)
    _RESOURCE.strategy.decode(obj)
    obj["metadata"].setdefault("uid", "u")
    return obj


def _owned(obj: Document, manager: str) -> Any:
    entries = [entry for entry in obj["metadata"].get("managedFields") or [] if entry["manager"] == manager]
    return entries[0]["fieldsV1"] if entries else {}


@given(_RANDOM)
def test_applying_the_same_again_changes_nothing(random: Random) -> None:
    config = _config(random)
    first = _apply("one", None, config, now=_THEN)
    again = _apply("one", first, config)
    keep_times(again, first)
    assert again == first


@given(_RANDOM)
def test_who_is_forced_in_owns_all_that_it_applies(random: Random) -> None:
    one, two = _config(random), _config(random)
    alone = _apply("two", None, two)
    both = _apply("two", _apply("one", None, one), two)
    assert _owned(both, "two") == _owned(alone, "two")


@given(_RANDOM)
def test_whoever_applies_nothing_owns_nothing_and_leaves_what_others_own(random: Random) -> None:
    one, two = _config(random), _config(random)
    both = _apply("two", _apply("one", None, one), two)
    left = _apply("one", both, {**one, "spec": {}})
    assert _owned(left, "two") == _owned(both, "two")
    assert intersection(_owned(left, "one"), {"f:spec": _owned(both, "one").get("f:spec", {})}) in ({}, {"f:spec": {}})


@given(_RANDOM)
def test_an_update_takes_what_it_changes(random: Random) -> None:
    live = _apply("one", None, _config(random))
    new = {**_config(random), "metadata": copied(live["metadata"])}
    _manager("two").decode(new, live)
    unchanged = {**copied(new)}
    _manager("three").decode(unchanged, new)
    assert unchanged["metadata"] == new["metadata"]
    taken = _owned(new, "two")
    assert intersection(_owned(new, "one"), taken) == {}


@pytest.mark.parametrize("sent", [[], [{}]])
def test_a_client_can_give_up_tracking(sent: list[Any]) -> None:
    live = _apply("one", None, _config(Random(1)))
    new = {**copied(live), "metadata": {**live["metadata"], "managedFields": sent}}
    _manager("two").decode(new, live)
    assert "managedFields" not in new["metadata"]
    new["spec"] = {"size": 7}
    _manager("two").decode(new, {**live, "metadata": {"uid": "u", "name": "x"}})
    assert "managedFields" not in new["metadata"]


def test_an_untracked_object_belongs_to_those_before_the_first_apply() -> None:
    live = {
        "apiVersion": _RESOURCE.api_version,
        "kind": "Gadget",
        "metadata": {"name": "x", "uid": "u"},
        "spec": {"size": 1},
    }
    config = {**live, "metadata": {"name": "x"}, "spec": {"size": 2}}
    with pytest.raises(
        ApiError, match=r'conflict with "before-first-apply" using apply\.example\.com/v1: \.spec\.size'
    ):
        applied(_manager("one"), live, config, force=False)


@pytest.mark.parametrize(
    "entry",
    [
        {"manager": "x", "operation": "Other", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}},
        {"manager": "x", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {}},
        {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV2", "fieldsV1": {}},
        {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"?": {}}},
    ],
)
def test_managers_that_nobody_can_read_are_not_taken_over(entry: Document) -> None:
    live = _apply("one", None, _config(Random(1)))
    new = {**copied(live), "metadata": {**live["metadata"], "managedFields": [entry]}}
    _manager("two").decode(new, live)
    assert new["metadata"] == live["metadata"]
    warnings: list[str] = []
    changed = {"metadata": {"managedFields": [entry]}}
    keep_readable(changed, live["metadata"]["managedFields"], warnings)
    assert changed["metadata"]["managedFields"] == live["metadata"]["managedFields"]
    assert "invalid state after admission" in warnings[0]


def test_of_many_updaters_the_oldest_become_one() -> None:
    obj: Document = {"apiVersion": _RESOURCE.api_version, "kind": "Gadget", "metadata": {"name": "x"}, "spec": {}}
    _manager("m00", _THEN).decode(obj)
    obj["metadata"]["uid"] = "u"
    for step in range(1, 14):
        new = copied(obj)
        new["spec"].setdefault("granular", {})[f"k{step:02}"] = "v"
        FieldManager(_REGISTRY, _RESOURCE, "", f"m{step:02}", f"2026-01-01T00:00:{step:02}Z").decode(new, obj)
        obj = new
    entries = obj["metadata"]["managedFields"]
    assert [entry["manager"] for entry in entries] == ["ancient-changes", *(f"m{step:02}" for step in range(5, 14))]
    assert _owned(obj, "ancient-changes")["f:spec"]["f:granular"].keys() == {".", "f:k01", "f:k02", "f:k03", "f:k04"}
    assert entries[0]["time"] == "2026-01-01T00:00:04Z"


def test_a_write_of_nothing_but_a_time_is_none() -> None:
    live = _apply("one", None, _config(Random(1)), now=_THEN)
    later = copied(live)
    later["metadata"]["managedFields"][0]["time"] = _NOW
    keep_times(later, live)
    assert later == live
    later["metadata"]["managedFields"][0]["time"] = _NOW
    later["spec"]["size"] = 99
    keep_times(later, live)
    assert later["metadata"]["managedFields"][0]["time"] == _NOW
