"""What is read from an ElasticQuota."""

from __future__ import annotations

import pytest

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.api.quantity import Quantity
from tests.model.quota_tree.quota_objects import amounts, quota


def test_what_is_not_said_has_the_defaults_of_the_original() -> None:
    read = quota("a")
    assert (read.parent, read.tree, read.namespaces) == (ROOT_QUOTA, "", ())
    assert (read.is_parent, read.is_tree_root, read.allows_lending, read.allows_force_update) == (
        False,
        False,
        True,
        False,
    )
    assert read.max == read.min == read.guaranteed == {}


def test_the_root_has_no_parent() -> None:
    assert quota(ROOT_QUOTA).parent == ""


def test_labels_are_flags_only_in_the_spelling_of_the_original() -> None:
    labels = {"is-root": "true", "allow-force-update": "True", "allow-lent-resource": "false"}
    read = quota("a", labels=labels)
    assert (read.is_tree_root, read.allows_force_update, read.allows_lending) == (True, False, False)


def test_amounts_in_annotations_are_read() -> None:
    read = quota("a", annotations={"guaranteed": {**amounts(cpu=10), "memory": 5}})
    assert read.guaranteed == {"cpu": Quantity.parse("10"), "memory": Quantity.parse("5")}


@pytest.mark.parametrize("text", ["", "null", "{", "[]", '{"cpu":"x"}'])
def test_amounts_that_cannot_be_read_are_none(text: str) -> None:
    assert quota("a", annotations={"guaranteed": text}).guaranteed == {}


def test_namespaces_are_read() -> None:
    assert quota("a", annotations={"namespaces": '["n1","n2"]'}).namespaces == ("n1", "n2")


@pytest.mark.parametrize("text", ["", "null", "n1", '{"n1": 1}', "[1]"])
def test_namespaces_that_cannot_be_read_are_none(text: str) -> None:
    assert quota("a", annotations={"namespaces": text}).namespaces == ()
