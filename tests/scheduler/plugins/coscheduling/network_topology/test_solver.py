"""The solver: what must hold of any distribution, and the smallest domain beside a search of all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.model.gang_declaration import (
    GatherRule,
    TopologySpec,
    topology_spec_of,
)
from koordinator.scheduler.plugins.coscheduling.network_topology.solver import (
    Demand,
    Distribution,
    NodeSlots,
    Tree,
    demand_of,
    distribute,
)
from tests.examples import examples
from tests.scheduler.plugins.coscheduling.network_topology.networks import tree_of

LAYERS = ("ClusterTopologyLayer", "SpineLayer", "BlockLayer", "NodeTopologyLayer")
PLACES = {f"n{number}": f"s{number // 4}/b{number // 2}" for number in range(8)}
"""Two spines of two blocks of two nodes."""


def solve(
    count: int,
    slots: dict[str, int],
    gather: str = "",
    *,
    places: dict[str, str] = PLACES,
    existing: dict[str, int] | None = None,
    scores: dict[str, int] | None = None,
    **multiples: int,
) -> tuple[str, dict[str, int]]:
    """The domain, and the nodes with how many each gets, in their order."""
    tree = tree_of(places)
    found = distribute(tree, Demand(count, gather, multiples), node_slots(tree, slots, scores or {}, existing or {}))
    if found.domain is None:
        assert found.by_node == ()
        return "", {}
    return tree.names[found.domain], {tree.names[leaf]: given for leaf, given in found.by_node}


def node_slots(tree: Tree, slots: dict[str, int], scores: dict[str, int], existing: dict[str, int]) -> NodeSlots:
    return NodeSlots(*({tree.leaf_of[name]: n for name, n in each.items()} for each in (slots, scores, existing)))


def each(slots: int) -> dict[str, int]:
    return dict.fromkeys(PLACES, slots)


def test_one_node_is_taken_if_it_holds_all() -> None:
    assert solve(2, {**each(1), "n5": 2}) == ("n5", {"n5": 2})


def test_of_nodes_that_hold_all_the_one_with_the_least_capacity_is_taken() -> None:
    assert solve(2, {**each(3), "n6": 2})[0] == "n6"


def test_one_block_is_taken_before_several() -> None:
    assert solve(4, {**each(2), "n0": 1}) == ("b1", {"n2": 2, "n3": 2})


def test_the_capacity_around_counts_where_domains_have_as_much() -> None:
    # b2 and b3 are in the spine with less free capacity.
    assert solve(4, {**each(2), "n0": 3})[0] == "b2"


def test_within_a_domain_the_emptiest_come_first() -> None:
    assert solve(6, {**each(1), "n2": 2, "n5": 4}) == ("s1", {"n5": 4, "n4": 1, "n6": 1})


def test_all_nodes_are_used_where_it_takes_them() -> None:
    assert solve(8, each(1))[1] == dict.fromkeys(PLACES, 1)


def test_pods_of_the_same_kind_come_before_room() -> None:
    assert solve(2, each(2), existing={"n7": 1})[0] == "n7"
    assert solve(2, {**each(2), "n7": 0}, existing={"n7": 1})[0] == "n6"


def test_a_score_decides_between_equals() -> None:
    assert solve(2, each(2), scores={"n3": 1})[0] == "n3"


def test_members_must_be_gathered_in_a_layer() -> None:
    assert solve(4, each(1), "SpineLayer")[0] == "s0"
    assert solve(4, each(1), "BlockLayer") == ("", {})
    assert solve(2, each(1), "NodeTopologyLayer") == ("", {})


def test_a_layer_that_nobody_knows_holds_nobody() -> None:
    assert solve(1, each(1), "RackLayer") == ("", {})


def test_domains_take_multiples() -> None:
    assert solve(4, {**each(1), "n0": 3, "n1": 3}, BlockLayer=4)[1] == {"n0": 3, "n1": 1}
    assert solve(4, each(1), BlockLayer=2) == ("s0", {"n0": 1, "n1": 1, "n2": 1, "n3": 1})
    assert solve(4, {**each(1), "n0": 0, "n5": 0}, BlockLayer=2)[1] == {"n2": 1, "n3": 1, "n6": 1, "n7": 1}
    assert solve(4, {**each(1), "n0": 0, "n5": 0, "n6": 0}, BlockLayer=2) == ("", {})


def test_a_number_of_members_that_is_no_multiple_fits_nowhere() -> None:
    # Not even on the one node that could take all of them: its block would have three.
    assert solve(3, each(3), BlockLayer=2) == ("", {})


def test_multiples_of_several_layers_hold_together() -> None:
    # Six would do for a block, four for a node: a block can have twelve only.
    assert solve(12, each(6), BlockLayer=6, NodeTopologyLayer=4) == ("", {})
    assert solve(12, each(8), BlockLayer=6, NodeTopologyLayer=4)[1] == {"n0": 8, "n1": 4}


def test_nobody_has_no_domain() -> None:
    assert solve(0, each(1)) == ("", {})


def rule(layer: str, strategy: str = "MustGather", multiple: int = 0) -> GatherRule:
    return GatherRule(layer, strategy, multiple)


@pytest.mark.parametrize(
    ("rules", "layer"),
    [
        ([], ""),
        ([rule("BlockLayer", "PreferGather")], ""),
        ([rule("SpineLayer"), rule("BlockLayer")], "BlockLayer"),
        ([rule("BlockLayer"), rule("SpineLayer")], "BlockLayer"),
        ([rule("SpineLayer"), rule("ClusterTopologyLayer")], "SpineLayer"),
        ([rule("SpineLayer"), rule("RackLayer")], "SpineLayer"),
        ([rule("RackLayer")], "RackLayer"),
    ],
)
def test_the_layer_nearest_to_the_nodes_is_gathered_in(rules: list[GatherRule], layer: str) -> None:
    assert demand_of(TopologySpec(tuple(rules)), 1, tree_of(PLACES)).gather_in == layer


def test_multiples_up_to_one_say_nothing() -> None:
    rules = (rule("BlockLayer", multiple=1), rule("SpineLayer", "PreferGather", 4))
    assert demand_of(TopologySpec(rules), 1, tree_of(PLACES)).multiples == {"SpineLayer": 4}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "input data was truncated"),
        ('{"gatherStrategy": [{"podCountMultiple": "2"}]}', "expected `int`, got `str`"),
        ('{"gatherStrategy": [{"layer": "a", "strategy": "Gather"}]}', "is 'Gather'; expected is MustGather or Prefer"),
    ],
    ids=["no JSON", "a text", "a strategy"],
)
def test_what_cannot_be_read_is_said(text: str, problem: str) -> None:
    problems: list[str] = []
    topology_spec_of({"gang.scheduling.koordinator.sh/network-topology-spec": text}, problems)
    assert len(problems) == 1
    assert problem.lower() in problems[0].lower()


@pytest.mark.parametrize("text", ["{}", "null", '{"gatherStrategy": null, "more": 1}'])
def test_a_spec_without_rules_gathers_as_well_as_it_goes(text: str) -> None:
    problems: list[str] = []
    spec = topology_spec_of({"gang.scheduling.koordinator.sh/network-topology-spec": text}, problems)
    assert spec is not None
    assert (spec.rules, problems) == ((), [])


@dataclass(frozen=True)
class Case:
    places: dict[str, str]
    slots: dict[str, int]
    existing: dict[str, int]
    demand: Demand


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 7))
    names = [f"n{number}" for number in range(count)]
    places = {name: f"s{draw(st.integers(0, 1))}/b{draw(st.integers(0, 2))}" for name in names}
    slots = {name: draw(st.integers(0, 6)) for name in names}
    existing = {name: draw(st.sampled_from([0, 0, 1])) for name in names}
    multiples = draw(st.dictionaries(st.sampled_from(LAYERS), st.integers(2, 4), max_size=2))
    return Case(
        places, slots, existing, Demand(draw(st.integers(1, 10)), draw(st.sampled_from(("", *LAYERS))), multiples)
    )


def path(case: Case, name: str) -> tuple[str, ...]:
    spine, block = case.places[name].split("/")
    return "", spine, f"{spine}/{block}", name


def solved(case: Case) -> tuple[Tree, Distribution]:
    tree = tree_of(case.places)
    return tree, distribute(tree, case.demand, node_slots(tree, case.slots, {}, case.existing))


@settings(max_examples=examples(100), deadline=None)
@given(cases())
def test_what_holds_of_any_distribution(case: Case) -> None:
    tree, found = solved(case)
    if found.domain is None:
        return
    given_to = Counter({tree.names[leaf]: count for leaf, count in found.by_node})
    assert given_to.total() == case.demand.count
    assert all(0 < count <= case.slots[name] for name, count in given_to.items())
    used = [Counter[str]() for _ in LAYERS]
    for name, count in given_to.items():
        for depth, domain in enumerate(path(case, name)):
            used[depth][domain] += count
    for depth, layer in enumerate(LAYERS):
        multiple = case.demand.multiples.get(layer, 1)
        assert all(count % multiple == 0 for count in used[depth].values())
        if layer == case.demand.gather_in:
            assert len(used[depth]) == 1
    assert len(used[found.depth]) == 1


def can_hold(case: Case, names: list[str], count: int) -> bool:
    """Whether the nodes can take exactly so many by themselves, by trying every number for every node."""
    step = case.demand.multiples

    def fits(numbers: dict[str, int]) -> bool:
        for depth, layer in enumerate(LAYERS):
            sums = Counter[str]()
            for name, number in numbers.items():
                sums[path(case, name)[depth]] += number
            if any(total % step.get(layer, 1) for total in sums.values()):
                return False
        return True

    def tried(left: list[str], numbers: dict[str, int], rest: int) -> bool:
        if not left:
            return rest == 0 and fits(numbers)
        most = min(case.slots[left[0]], rest)
        return any(tried(left[1:], {**numbers, left[0]: number}, rest - number) for number in range(most + 1))

    return tried(names, {}, count)


@settings(max_examples=examples(100), deadline=None)
@given(cases())
def test_the_smallest_domain_is_found_if_there_is_one(case: Case) -> None:
    tree, found = solved(case)
    gather = LAYERS.index(case.demand.gather_in) if case.demand.gather_in else 0
    depth = None
    for candidate in range(gather, len(LAYERS)):
        domains: dict[str, list[str]] = {}
        for name in case.places:
            domains.setdefault(path(case, name)[candidate], []).append(name)
        if any(can_hold(case, names, case.demand.count) for names in domains.values()):
            depth = candidate
    assert (found.domain is None) is (depth is None)
    if depth is not None:
        assert found.depth == depth
        assert found.domain in tree.levels[depth]


@settings(max_examples=examples(100), deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_in_which_things_come_does_not_matter(case: Case, random: object) -> None:
    def shuffled(of: dict[str, int]) -> dict[str, int]:
        items = list(of.items())
        random.shuffle(items)  # type: ignore[attr-defined]
        return dict(items)

    def names(tree: Tree, found: Distribution) -> list[tuple[str, int]]:
        return [(tree.names[leaf], count) for leaf, count in found.by_node]

    tree, found = solved(case)
    other_places = {name: case.places[name] for name in shuffled(case.slots)}
    other_tree, other = solved(Case(other_places, shuffled(case.slots), shuffled(case.existing), case.demand))
    assert names(other_tree, other) == names(tree, found)


@settings(max_examples=examples(100), deadline=None)
@given(cases())
def test_of_domains_at_the_layer_to_gather_in_the_fullest_is_taken(case: Case) -> None:
    """Without pods of the same kind, no candidate has less free capacity than the one that is taken."""
    tree, found = solved(Case(case.places, case.slots, {}, case.demand))
    if found.domain is not None and found.depth == found.gather_depth:
        domain_slots = [found.slots[domain] for domain in tree.levels[found.depth].tolist()]
        assert found.slots[found.domain] == min(slots for slots in domain_slots if slots >= case.demand.count)
