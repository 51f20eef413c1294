"""However events come, the tree is that of the objects that there are in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.pod import ResourceList
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree
from tests.model.quota_tree.quota_objects import quota

NAMES = st.sampled_from(["a", "b", "c", "d"])
NAMESPACES = st.sampled_from(["m", "n"])


@st.composite
def quotas(draw: st.DrawFn) -> Quota:
    name, namespace = draw(NAMES), draw(NAMESPACES)
    claimed = draw(st.lists(NAMESPACES, max_size=3))
    # A name in a namespace is always of the same age, as one object is.
    created = f"2026-01-0{1 + 'abcd'.index(name) % 2 + (namespace == 'm')}T00:00:00Z"
    given = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["-1", "0", "1", "1500m"]))
    return quota(
        name,
        namespace=namespace,
        parent=draw(st.one_of(st.none(), NAMES)),
        tree=draw(st.sampled_from([None, "t"])),
        max=draw(given),
        min=draw(given),
        annotations={"namespaces": claimed, "guaranteed": draw(given)},
        creationTimestamp=created,
    )


EVENTS = st.lists(st.one_of(quotas(), st.tuples(NAMESPACES, NAMES).map("/".join)), max_size=30)


def seen(tree: QuotaTree) -> dict[str, Any]:
    """All that can be queried."""
    return {
        "quotas": list(tree),
        "hierarchy": tree.hierarchy(),
        "claimants": [tree.claimant(namespace) for namespace in ("m", "n")],
        "objects": [tree.object(f"{namespace}/{name}") for namespace in "mn" for name in "abcd"],
    }


@given(EVENTS, st.randoms(use_true_random=False))
def test_events_in_any_order_give_the_tree_of_the_final_objects(events: list[Quota | str], random: Any) -> None:
    tree, final = QuotaTree(), dict[str, Quota]()
    for event in events:
        if isinstance(event, Quota):
            tree.put(event)
            final[event.key] = event
        else:
            tree.discard(event)
            final.pop(event, None)
    shuffled = list(final.values())
    random.shuffle(shuffled)
    assert seen(tree) == seen(QuotaTree(shuffled))


def summed(lists: Iterable[ResourceList]) -> dict[str, int]:
    """Without what adds up to nothing."""
    total = Counter[str]()
    for resources in lists:
        for name, amount in resources.items():
            total[name] += amount.nanos
    return {name: amount for name, amount in total.items() if amount}


def without_zeros(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


@given(EVENTS, NAMES)
def test_sums_that_are_kept_are_those_that_are_added_up_anew(events: list[Quota | str], but_for: str) -> None:
    tree = QuotaTree()
    for event in events:
        if isinstance(event, Quota):
            tree.put(event)
        else:
            tree.discard(event)
    for parent in (*tree.hierarchy(), "nobody"):
        children = tree.children(parent)
        others = [child for child in children if child.name != but_for]
        assert tree.child_count(parent) == len(children)
        assert set(tree.shapes_below(parent)) == {child.shape for child in children}
        assert tree.min_below(parent) == summed(child.min for child in children)
        assert tree.guaranteed_below(parent) == summed(child.guaranteed for child in children)
        assert without_zeros(tree.min_below(parent, but_for)) == summed(child.min for child in others)
        assert without_zeros(tree.guaranteed_below(parent, but_for)) == summed(child.guaranteed for child in others)


@given(EVENTS)
def test_every_quota_is_a_child_of_its_parent_and_of_no_other(events: list[Quota | str]) -> None:
    tree = QuotaTree(event for event in events if isinstance(event, Quota))
    found = {(parent, child) for parent, children in tree.hierarchy().items() for child in children}
    assert found == {(quota.parent, quota.name) for quota in tree}
