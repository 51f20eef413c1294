"""Whatever sequence of changes is accepted, no quota is guaranteed what its parent does not have."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document
from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.model.quota_tree.amounts import added, exact, fits
from koordinator.model.quota_tree.tree import QuotaTree
from tests.manager.webhook.elastic_quota.quota_bench import QuotaBench
from tests.model.quota_tree.quota_objects import quota_document

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
RESOURCES = st.sampled_from([("cpu",), ("cpu", "memory")])


@st.composite
def wanted_quotas(draw: st.DrawFn) -> Document:
    least = {resource: str(draw(st.integers(0, 6))) for resource in draw(RESOURCES)}
    most = dict.fromkeys(least, "6")
    parent, is_parent = draw(st.one_of(st.none(), NAMES)), draw(st.booleans())
    return quota_document(draw(NAMES), parent=parent, is_parent=is_parent, min=least, max=most)


CHANGES = st.lists(st.one_of(wanted_quotas(), wanted_quotas(), NAMES), max_size=60)


def apply(bench: QuotaBench, changes: list[Any], check: Callable[[QuotaTree], None]) -> None:
    """Ask for each; what is accepted is stored, and the tree judged."""
    stored: dict[str, Document] = {}
    for change in changes:
        if isinstance(change, str):
            if change in stored and not bench.delete(stored[change]):
                bench.observe_deletion(stored.pop(change))
        else:
            name = change["metadata"]["name"]
            refusal = bench.update(stored[name], change) if name in stored else bench.create(change)
            if not refusal:
                stored[name] = change
        check(bench.quotas.tree())


def no_parent_promises_too_much(tree: QuotaTree) -> None:
    for quota in tree:
        assert fits(reduce(added, (exact(child.min) for child in tree.children(quota.name)), {}), exact(quota.min))


def all_are_below_the_root(tree: QuotaTree) -> None:
    for quota in tree:
        top = [quota, *tree.ancestors(quota)][-1]
        assert top.parent == ROOT_QUOTA


def only_parents_have_children(tree: QuotaTree) -> None:
    assert all(quota.is_parent or not tree.children(quota.name) for quota in tree)


@given(CHANGES)
def test_min_sums_stay_within_parents(changes: list[Any]) -> None:
    apply(QuotaBench(), changes, no_parent_promises_too_much)


@given(CHANGES)
def test_every_quota_stays_below_the_root(changes: list[Any]) -> None:
    apply(QuotaBench(), changes, all_are_below_the_root)


@given(CHANGES)
def test_only_parents_have_children(changes: list[Any]) -> None:
    apply(QuotaBench(), changes, only_parents_have_children)


@given(CHANGES, wanted_quotas())
def test_dry_runs_change_nothing(changes: list[Any], change: Document) -> None:
    bench = QuotaBench()
    apply(bench, changes, lambda tree: None)
    before = list(bench.quotas.tree())
    bench.create(change, dry_run=True)
    bench.update(change, quota_document(change["metadata"]["name"]), dry_run=True)
    bench.delete(change, dry_run=True)
    assert list(bench.quotas.tree()) == before
