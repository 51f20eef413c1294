"""The network as a tree: layers, domains, and what is written about them."""

from __future__ import annotations

import pytest

from koordinator.api.cluster_network_topology import NetworkTopologySpec
from koordinator.api.codec import to_document
from koordinator.api.node import Node
from koordinator.scheduler.plugins.coscheduling.network_topology.cluster_topology import (
    ClusterTopology,
    detail_status,
)
from koordinator.scheduler.plugins.coscheduling.network_topology.solver import TopologyError, Tree, layers_of
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.coscheduling.network_topology.networks import (
    SPEC,
    cluster_network_topology,
    place,
    tree_of,
)


def test_layers_are_in_order_whatever_the_order_of_the_spec() -> None:
    assert [layer.name for layer in layers_of(SPEC[::-1])] == ["SpineLayer", "BlockLayer", "NodeTopologyLayer"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (SPEC[:2], 'topology layer "NodeTopologyLayer" not found in spec'),
        ([SPEC[0], SPEC[2]], 'topology layer "BlockLayer" not found in spec'),
        ([*SPEC, NetworkTopologySpec("Other")], 'topology layer "ClusterTopologyLayer" not found in spec'),
        (
            [NetworkTopologySpec("NodeTopologyLayer", "A"), NetworkTopologySpec("A", "A"), NetworkTopologySpec("B")],
            'topology layer "A" is above itself',
        ),
    ],
    ids=["no nodes", "a gap", "a layer beside", "a circle"],
)
def test_layers_that_make_no_tree(spec: list[NetworkTopologySpec], text: str) -> None:
    with pytest.raises(TopologyError, match=text):
        layers_of(spec)


def test_the_first_label_with_a_value_names_the_domain() -> None:
    layers = layers_of(SPEC)
    assert [layer.label_keys for layer in layers] == [("network/spine",), ("network/block", "network/tor"), ()]
    tree = tree_of({"a": "s0/b0", "b": "s0/b0", "c": "s1/b1"})
    assert [[tree.names[each] for each in level] for level in tree.levels] == [
        [""],
        ["s0", "s1"],
        ["b0", "b1"],
        ["a", "b", "c"],
    ]


def test_a_node_without_the_label_of_the_layer_above_it_is_a_domain_of_its_own() -> None:
    tree = tree_of({"a": "s0/", "b": "s0/b0"})
    assert [tree.names[each] for each in tree.levels[2]] == ["a", "b0"]
    assert tree.left_out == {}


def test_a_node_without_another_label_is_left_out() -> None:
    tree = tree_of({"a": "/b0", "b": "s0/b0"})
    assert list(tree.leaf_of) == ["b"]
    assert tree.left_out == {"a": 'node "a" missing network topology layer "SpineLayer"'}


def test_equal_names_below_different_parents_are_different_domains() -> None:
    tree = tree_of({"a": "s0/rack-1", "b": "s1/rack-1"})
    assert len(tree.levels[2]) == 2


def test_without_layers_there_is_a_root_and_nothing_else() -> None:
    tree = tree_of({"a": "s0/b0"}, [])
    assert (len(tree), tree.leaf_of) == (1, {})


def test_the_status_names_all_domains_but_nodes() -> None:
    tree = tree_of({"n1": "s0/b1", "n0": "s0/b0", "n2": "s0/"})
    assert [to_document(each) for each in detail_status(tree)] == [
        {
            "topologyInfo": {"topologyLayer": "ClusterTopologyLayer", "topologyName": ""},
            "childTopologyLayer": "SpineLayer",
            "childTopologyNames": ["s0"],
            "nodeNum": 3,
        },
        {
            "topologyInfo": {"topologyLayer": "SpineLayer", "topologyName": "s0"},
            "parentTopologyInfo": {"topologyLayer": "ClusterTopologyLayer", "topologyName": ""},
            "childTopologyLayer": "BlockLayer",
            "childTopologyNames": ["b0", "b1", "n2"],
            "nodeNum": 3,
        },
        *(
            {
                "topologyInfo": {"topologyLayer": "BlockLayer", "topologyName": name},
                "parentTopologyInfo": {"topologyLayer": "SpineLayer", "topologyName": "s0"},
                "childTopologyLayer": "NodeTopologyLayer",
                "nodeNum": 1,
            }
            for name in ("b0", "b1", "n2")
        ),
    ]


def test_the_status_of_a_network_without_nodes_is_its_root() -> None:
    assert [to_document(each) for each in detail_status(tree_of({}))] == [
        {"topologyInfo": {"topologyLayer": "ClusterTopologyLayer", "topologyName": ""}, "nodeNum": 0}
    ]


def node(name: str, where: str) -> Node:
    return make_node(name, labels=place(where))


def nodes_of(topology: ClusterTopology) -> set[str]:
    assert topology.tree is not None
    return set(topology.tree.leaf_of)


def test_the_tree_follows_nodes() -> None:
    topology = ClusterTopology()
    topology.set_node(node("a", "s0/b0"))
    assert topology.tree is None
    topology.set_object(cluster_network_topology())
    assert nodes_of(topology) == {"a"}
    topology.set_node(node("b", "s0/b0"))
    assert nodes_of(topology) == {"a", "b"}
    topology.set_node(node("b", ""))
    assert nodes_of(topology) == {"a"}
    topology.remove_node("a")
    assert nodes_of(topology) == set()


def test_what_says_nothing_new_makes_no_new_tree() -> None:
    topology = ClusterTopology()
    topology.set_object(cluster_network_topology())
    topology.set_node(node("a", "s0/b0"))
    tree, version = topology.tree, topology.version
    topology.set_node(make_node("a", cpu="9", labels={**place("s0/b0"), "other": "1"}))
    topology.set_object(cluster_network_topology())
    topology.remove_node("unknown")
    assert topology.tree is tree
    assert topology.version == version


@pytest.mark.parametrize("later", [None, cluster_network_topology(SPEC[:1])], ids=["gone", "wrong"])
def test_the_layers_stay_when_the_object_cannot_be_used_any_more(later: object) -> None:
    topology = ClusterTopology()
    topology.set_object(cluster_network_topology())
    topology.set_object(later)  # type: ignore[arg-type]
    topology.set_node(node("a", "s0/b0"))
    assert nodes_of(topology) == {"a"}
    assert bool(topology.problem) is (later is not None)


def test_a_thousand_nodes_make_one_tree() -> None:
    made: list[Tree] = []
    topology = ClusterTopology()
    topology.set_object(cluster_network_topology())
    for number in range(1000):
        topology.set_node(node(f"n{number}", f"s{number % 3}/b{number % 50}"))
    for _ in range(3):
        assert topology.tree is not None
        made.append(topology.tree)
    assert made[0] is made[2]
    assert len(made[0].leaf_of) == 1000
