"""Accepted changes count until the watch shows what became of them."""

from __future__ import annotations

import asyncio

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.manager.webhook.elastic_quota.assume_cache import WRITE_SECONDS
from tests.manager.webhook.elastic_quota.quota_bench import QuotaBench, changed, versioned
from tests.model.quota_tree.quota_objects import quota_document

TOP = quota_document("top", is_parent=True)
A = quota_document("a", parent="top")
MOVED = changed(A, {"parent": ROOT_QUOTA})
NONE: dict[str, list[str]] = {ROOT_QUOTA: []}
TOP_ALONE = {ROOT_QUOTA: ["top"], "top": []}
A_BELOW_TOP = {ROOT_QUOTA: ["top"], "top": ["a"], "a": []}
A_AT_TOP = {ROOT_QUOTA: ["a", "top"], "top": [], "a": []}


def after(bench: QuotaBench, seconds: float) -> QuotaBench:
    asyncio.run(bench.clock.advance(seconds))
    return bench


def stored(version: int = 5) -> QuotaBench:
    bench = QuotaBench()
    bench.observe(versioned(TOP, 1), versioned(A, version))
    return bench


def test_dry_runs_leave_nothing_behind() -> None:
    bench = stored()
    assert bench.create(quota_document("b"), dry_run=True) == ""
    assert bench.update(versioned(A, 5), versioned(MOVED, 5), dry_run=True) == ""
    assert bench.delete(versioned(A, 5), dry_run=True) == ""
    assert bench.hierarchy() == A_BELOW_TOP


def test_a_dry_run_is_checked_like_any_request() -> None:
    assert stored().delete(TOP, dry_run=True) == "delete quota failed, quota top has 1 child quotas"


def test_a_creation_that_is_never_stored_is_forgotten() -> None:
    bench = QuotaBench()
    bench.create(TOP)
    assert after(bench, WRITE_SECONDS - 1).hierarchy() == TOP_ALONE
    assert after(bench, 1).hierarchy() == NONE


def test_a_creation_that_was_stored_stays() -> None:
    bench = QuotaBench()
    bench.create(TOP)
    bench.observe(versioned(TOP, 1))
    assert after(bench, WRITE_SECONDS).hierarchy() == TOP_ALONE


def test_a_creation_that_failed_can_be_tried_again_at_once() -> None:
    bench = QuotaBench()
    assert bench.create(TOP) == ""
    assert bench.create(TOP) == ""
    assert bench.create(quota_document("top", namespace="elsewhere")) == "AddQuota quota already exist:top"


def test_an_update_that_is_never_stored_is_taken_back() -> None:
    bench = stored()
    bench.update(versioned(A, 5), versioned(MOVED, 5))
    assert bench.hierarchy() == A_AT_TOP
    assert after(bench, WRITE_SECONDS).hierarchy() == A_BELOW_TOP


def test_what_the_watch_shows_of_before_an_update_does_not_undo_it() -> None:
    bench = stored(4)
    bench.update(versioned(A, 5), versioned(MOVED, 5))
    bench.observe(versioned(A, 5))
    assert bench.hierarchy() == A_AT_TOP


def test_what_was_stored_instead_of_an_update_counts() -> None:
    bench = stored()
    bench.update(versioned(A, 5), versioned(MOVED, 5))
    bench.observe(versioned(A, 6))
    assert bench.hierarchy() == A_BELOW_TOP


def test_a_deletion_that_never_comes_is_taken_back() -> None:
    bench = stored()
    bench.delete(versioned(A, 5))
    assert bench.hierarchy() == TOP_ALONE
    assert after(bench, WRITE_SECONDS).hierarchy() == A_BELOW_TOP


def test_a_quota_that_its_finalizers_keep_counts_again() -> None:
    bench = stored()
    bench.delete(versioned(A, 5))
    bench.observe(versioned(A, 6))
    assert bench.hierarchy() == A_BELOW_TOP


def test_a_quota_can_be_created_anew_before_its_deletion_is_seen() -> None:
    bench = stored()
    assert bench.delete(versioned(A, 5)) == ""
    assert bench.create(MOVED) == ""
    bench.observe_deletion(versioned(A, 6))
    assert bench.hierarchy() == A_AT_TOP


def test_an_update_of_what_is_gone_is_gone() -> None:
    bench = stored()
    bench.update(versioned(A, 5), versioned(MOVED, 5))
    bench.observe_deletion(versioned(A, 6))
    assert bench.hierarchy() == TOP_ALONE


def test_versions_that_cannot_be_compared_are_believed() -> None:
    bench = stored()
    bench.update(versioned(A, 5), versioned(MOVED, 5))
    bench.observe(A)
    assert bench.hierarchy() == A_BELOW_TOP
