"""However events come, the tree is that of the objects that there are in the end."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

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
    return quota(
        name,
        namespace=namespace,
        parent=draw(st.one_of(st.none(), NAMES)),
        annotations={"namespaces": claimed},
        creationTimestamp=created,
    )


EVENTS = st.lists(st.one_of(quotas(), st.tuples(NAMESPACES, NAMES).map("/".join)), max_size=30)


def seen(tree: QuotaTree) -> dict[str, Any]:
    """All that can be asked."""
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


@given(EVENTS)
def test_every_quota_is_a_child_of_its_parent_and_of_no_other(events: list[Quota | str]) -> None:
    tree = QuotaTree(event for event in events if isinstance(event, Quota))
    found = {(parent, child) for parent, children in tree.hierarchy().items() for child in children}
    assert found == {(quota.parent, quota.name) for quota in tree}
