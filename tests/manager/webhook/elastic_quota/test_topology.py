"""What must hold between parent and child: the cases of the original's own tests."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused, QuotaSettings
from koordinator.manager.webhook.elastic_quota.topology import Change, check_topology
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree
from tests.model.quota_tree.quota_objects import amounts, quota, tree_of

KEYS = "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed: "
ONE = amounts(10, 20)


def refusal(*around: Quota, of: Quota, old: Quota | None = None, pods: bool = False, **settings: bool) -> str:
    change = Change(tree_of(*around, *((old,) if old else ())), of, old)
    try:
        check_topology(change, lambda: pods, QuotaSettings(**settings))
    except QuotaRefused as refused:
        return str(refused)
    return ""


def parent(name: str = "temp", **given: Any) -> Quota:
    return quota(name, is_parent=True, **given)


def child(name: str = "temp-bu1", above: str = "temp", **given: Any) -> Quota:
    return quota(name, parent=above, is_parent=False, **given)


@pytest.mark.parametrize(
    ("above", "below", "same", "may_differ"),
    [
        ({"max": amounts(120, 1)}, {"max": amounts(120, 1)}, "", ""),
        (
            {"max": amounts(10, 120)},
            {"max": amounts(120)},
            "{first}'s max keys are not the same with {second}'s",
            "",
        ),
        (
            {"max": amounts(None, 120)},
            {"max": amounts(120)},
            "{first}'s max keys are not the same with {second}'s",
            "temp-bu1's max keys are not all included in temp's",
        ),
        ({"min": amounts(120, 120)}, {"min": amounts(120)}, "", ""),
        (
            {"min": amounts(120)},
            {"min": amounts(120, 120)},
            "temp-bu1's min keys are not all included in temp's",
            "temp-bu1's min keys are not all included in temp's",
        ),
    ],
)
@pytest.mark.parametrize("judged", ["parent", "child"])
def test_resources_of_parent_and_child(
    above: dict[str, Any], below: dict[str, Any], same: str, may_differ: str, judged: str
) -> None:
    top, bottom = parent(**above), child(**below)
    around, of = ((top,), bottom) if judged == "child" else ((bottom,), top)
    first, second = (top.name, bottom.name) if judged == "child" else (bottom.name, top.name)
    assert refusal(*around, of=of) == (KEYS + same.format(first=first, second=second) if same else "")
    assert refusal(*around, of=of, same_resources=False) == (KEYS + may_differ if may_differ else "")


def test_a_quota_at_the_top_without_children_may_name_any_resource() -> None:
    assert refusal(of=quota("temp", max=ONE, min=amounts(1), is_parent=False)) == ""


@pytest.mark.parametrize(
    ("trees", "wanted"),
    [
        ((None, None, None), ""),
        (("tree-1", "tree-1", "tree-1"), ""),
        ((None, "tree-1", "tree-1"), "temp tree id is different from parent parent, [tree-1] vs []"),
        (("tree-1", None, "tree-1"), "temp tree id is different from parent parent, [] vs [tree-1]"),
        (("tree-1", "tree-1", None), "temp tree id is different from child child, [tree-1] vs []"),
    ],
)
def test_one_tree_from_the_top_down(trees: tuple[str | None, str | None, str | None], wanted: str) -> None:
    top = parent("parent", tree=trees[0], max=ONE, min=ONE)
    middle = quota("temp", parent="parent", is_parent=True, tree=trees[1], max=ONE, min=ONE)
    bottom = child("child", tree=trees[2], max=ONE, min=ONE)
    assert refusal(top, bottom, of=middle) == wanted


def test_a_quota_stays_in_its_tree() -> None:
    assert refusal(of=quota("a", tree="tree-1"), old=quota("a")) == "a tree id changed [] vs [tree-1]"


MOST = amounts(120, 1048576)


@pytest.mark.parametrize(
    ("above", "below", "fits"),
    [
        (amounts(10, 51200), amounts(16, 12800), False),
        (amounts(16, 12800), amounts(16, 12801), False),
        (amounts(19, 51200), amounts(16, 12800), True),
    ],
)
def test_children_are_guaranteed_no_more_than_their_parent(
    above: dict[str, str], below: dict[str, str], fits: bool
) -> None:
    top, bottom = parent(max=MOST, min=above), child(max=MOST, min=below)
    too_much = "checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: temp"
    too_little = "checkMinQuotaSum all children's MinQuota > current MinQuota, current: temp"
    assert refusal(top, of=bottom) == ("" if fits else too_much)
    assert refusal(bottom, of=top) == ("" if fits else too_little)


def test_brothers_count_and_the_quota_as_it_was_does_not() -> None:
    top, brother = parent(max=MOST, min=amounts(10, 0)), child("brother", max=MOST, min=amounts(4, 0))
    old = child(max=MOST, min=amounts(6, 0))
    assert refusal(top, brother, of=child(max=MOST, min=amounts(5, 0)), old=old) == ""
    assert "all brothers' MinQuota" in refusal(top, brother, of=child(max=MOST, min=amounts(7, 0)), old=old)


@pytest.mark.parametrize("label", ["allow-force-update", "is-root"])
def test_sums_are_not_looked_at_for_who_may_force(label: str) -> None:
    forced = parent(max=MOST, min=amounts(1, 1), labels={label: "true"})
    assert refusal(child(max=MOST, min=amounts(16, 1)), of=forced) == ""


def test_brothers_that_fit_are_not_gone_through() -> None:
    """Thousands of them must not make an admission slow; only to name one that does not fit they are looked at."""

    class Wide(QuotaTree):
        def children(self, name: str) -> list[Quota]:
            raise AssertionError(name)

    top, bottom = parent(max=MOST, min=amounts(9, 9)), child(max=MOST, min=amounts(4, 4))
    wide = Wide([top, bottom])
    for change in (Change(wide, child("other", max=MOST, min=amounts(5, 5)), None), Change(wide, top, top)):
        check_topology(change, lambda: False, QuotaSettings(guarantees=True))


def test_a_parent_without_min_has_nothing_to_promise() -> None:
    top = parent("temp-no-min", max=MOST)
    of = child("sub-1", "temp-no-min", max=MOST, min=amounts(19, 1))
    assert refusal(top, of=of) == f"{KEYS}sub-1's min keys are not all included in temp-no-min's"


def test_a_parent_must_be_there_and_be_one() -> None:
    text = "temp-bu1 has parentName temp but "
    assert refusal(of=child()) == f"{text}not find parentInfo in quotaInfoMap"
    assert refusal(quota("temp"), of=child()) == f"{text}the parentQuotaInfo's IsParent is false"


@pytest.mark.parametrize("below", ["a", "b", "c"])
def test_no_quota_comes_below_itself(below: str) -> None:
    old = parent("a")
    others = (quota("b", parent="a", is_parent=True), quota("c", parent="b", is_parent=True))
    moved = quota("a", parent=below, is_parent=True)
    assert refusal(*others, of=moved, old=old) == f"a has parentName {below} but {below} is a or below it"


def test_a_parent_with_children_stays_one() -> None:
    assert refusal(child(), of=quota("temp", is_parent=False), old=parent()) == (
        "quota has children, isParent is forbidden to modify as false, quotaName:temp"
    )


def test_a_quota_with_pods_becomes_no_parent() -> None:
    text = "quota has bound pods, isParent is forbidden to modify as true, quotaName: temp"
    assert refusal(of=parent(), old=quota("temp"), pods=True) == text
    assert refusal(of=parent(), old=quota("temp")) == ""
    assert refusal(of=parent(), pods=True) == ""


def guarantee_refusal(min_cpu: int, sibling_cpu: int, **labels: str) -> str:
    def below(name: str, least: dict[str, str], guaranteed: dict[str, str], **given: Any) -> Quota:
        return child(name, max=MOST, min=least, tree="tree1", annotations={"guaranteed": guaranteed}, **given)

    top = parent(
        tree="tree1",
        max=MOST,
        min=amounts(10, 51200),
        labels={"is-root": "true"},
        annotations={"guaranteed": amounts(10, 51200)},
    )
    sibling = below("test2", amounts(2, 10000), amounts(sibling_cpu, 10000))
    of = below("test1", amounts(min_cpu, 25600), amounts(6, 35600), labels=labels)
    return refusal(top, sibling, of=of, guarantees=True)


def test_what_is_guaranteed_already_needs_nobody() -> None:
    assert guarantee_refusal(5, 2) == ""


def test_what_the_parent_has_guaranteed_covers_its_children_together() -> None:
    assert guarantee_refusal(7, 3) == ""
    assert guarantee_refusal(8, 3) == "tree root quota temp can't guarantee for min test1"


def test_without_the_gate_or_with_force_nothing_has_to_be_guaranteed() -> None:
    assert guarantee_refusal(8, 3, **{"allow-force-update": "true"}) == ""
    assert guarantee_refusal(8, 3, **{"is-root": "true"}) == ""


def test_a_level_that_has_enough_covers_what_is_below_it() -> None:
    def level(name: str, above: str | None, guaranteed: int) -> Quota:
        annotations = {"guaranteed": amounts(guaranteed)}
        return quota(name, parent=above, is_parent=True, tree="t", max=ONE, min=amounts(5), annotations=annotations)

    top, middle = level("top", None, 5), level("middle", "top", 0)
    of = quota("leaf", parent="middle", tree="t", max=ONE, min=amounts(5))
    assert refusal(top, middle, of=of, guarantees=True) == ""
    poorer = level("top", None, 4)
    assert refusal(poorer, middle, of=of, guarantees=True) == "tree root quota top can't guarantee for min leaf"
