"""What is filled into new quotas: the cases of the original's own tests."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.codec import DecodeError
from koordinator.api.document import Document, copied
from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.manager.webhook.admission import ALLOWED, Operation
from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused
from tests.manager.webhook.elastic_quota.quota_bench import QuotaBench, quota_request
from tests.model.quota_tree.quota_objects import P, amounts, quota_document

MOST = amounts(120, 1048576)


def label(document: Document, name: str) -> str | None:
    found: str | None = document["metadata"]["labels"].get(f"{P}/{name}")
    return found


def weight(document: Document) -> str:
    found: str = document["metadata"]["annotations"][f"{P}/shared-weight"]
    return found


@pytest.mark.parametrize("tree", [None, "tree-1"])
def test_children_inherit_the_tree_of_their_parent(tree: str | None) -> None:
    bench = QuotaBench()
    top = bench.filled(quota_document("temp2", max=MOST, tree=tree))
    assert (label(top, "parent"), label(top, "tree-id")) == (ROOT_QUOTA, tree)
    bench.observe(top)
    below = bench.filled(quota_document("temp2-bu1", parent="temp2", max=MOST))
    assert (label(below, "parent"), label(below, "tree-id")) == ("temp2", tree)


def test_a_tree_that_is_named_stays() -> None:
    bench = QuotaBench()
    assert label(bench.filled(quota_document("a", parent="nobody", tree="t")), "tree-id") == "t"


def test_an_empty_parent_is_the_root() -> None:
    assert label(QuotaBench().filled(quota_document("a", parent="")), "parent") == ROOT_QUOTA


def test_a_child_needs_a_parent_to_inherit_from() -> None:
    with pytest.raises(QuotaRefused, match=r"^fill quota a failed, parent not exist$"):
        QuotaBench().filled(quota_document("a", parent="nobody"))


@pytest.mark.parametrize(
    ("given", "most", "wanted"),
    [
        (None, MOST, '{"cpu":"120","memory":"1048576"}'),
        ("", {"memory": "1Gi", "cpu": 2}, '{"cpu":"2","memory":"1Gi"}'),
        (None, None, "null"),
        (None, {}, "{}"),
        (amounts(0, 0), MOST, '{"cpu": "0", "memory": "0"}'),
        (amounts(0, 0), amounts(None, 1048576), '{"memory":"0"}'),
        (amounts(0), MOST, '{"cpu":"0","memory":"1048576"}'),
        (amounts(0), amounts(None, 1048576), '{"memory":"1048576"}'),
        ("null", MOST, '{"cpu":"120","memory":"1048576"}'),
    ],
)
def test_weights_name_the_resources_of_max(given: Any, most: Document | None, wanted: str) -> None:
    annotations = {} if given is None else {"shared-weight": given}
    assert weight(QuotaBench().filled(quota_document("temp2", max=most, annotations=annotations))) == wanted


def test_weights_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(QuotaRefused, match=r"^fillDefaultQuotaInfo unmarshal sharedWeight failed:not JSON"):
        QuotaBench().filled(quota_document("a", annotations={"shared-weight": "{"}))


def test_only_weights_that_were_filled_in_are_recorded() -> None:
    bench = QuotaBench()
    bench.filled(quota_document("a", max=MOST))
    bench.filled(quota_document("b", max=MOST, annotations={"shared-weight": amounts(1)}))
    bench.mutating.handle(quota_request("CREATE", quota_document("c", max=MOST), dry_run=True))
    assert bench.recorded == {"a": MOST}


def test_the_object_that_was_queried_about_is_not_changed() -> None:
    requested = quota_document("a", max=MOST)
    before = copied(requested)
    QuotaBench().filled(requested)
    assert requested == before


def test_a_quota_without_labels_and_annotations_gets_them() -> None:
    filled = QuotaBench().filled({"metadata": {"name": "quota1"}})
    assert filled == {
        "metadata": {
            "name": "quota1",
            "labels": {f"{P}/parent": ROOT_QUOTA},
            "annotations": {f"{P}/shared-weight": "null"},
        }
    }


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
def test_only_creations_are_changed(operation: Operation) -> None:
    assert QuotaBench().mutating.handle(quota_request(operation, {"metadata": {"name": "a"}})) is ALLOWED


def test_the_root_is_not_changed() -> None:
    document = quota_document(ROOT_QUOTA)
    assert QuotaBench().filled(document) is document


def test_nothing_is_no_quota() -> None:
    with pytest.raises(DecodeError, match="there is no content to decode"):
        QuotaBench().mutating.handle(quota_request("CREATE"))
