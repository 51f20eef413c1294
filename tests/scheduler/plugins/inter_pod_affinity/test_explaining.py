"""What ``koord explain`` says about a node that pod affinity or anti-affinity rejects."""

from __future__ import annotations

import msgspec

from koordinator.api.pod import Pod
from tests.scheduler.plugins.explaining import lacks_of
from tests.scheduler.plugins.inter_pod_affinity.fixtures import ClusterFixture, make_node, make_pod, must, term


def three_nodes() -> ClusterFixture:
    """a1 and a2 in zone a, b1 in zone b."""
    fixture = ClusterFixture()
    for name in ("a1", "a2", "b1"):
        fixture.set_node(make_node(name, zone=name[0], host=name))
    return fixture


def lacks(fixture: ClusterFixture, pod: Pod) -> dict[str, list[str]]:
    return lacks_of(fixture.profile, fixture.view, fixture.info(pod))


def test_pods_that_the_pod_wants_to_be_apart_from_are_named() -> None:
    fixture = three_nodes()
    fixture.place(make_pod("web-0", {"app": "web"}), "a1")
    found = lacks(fixture, make_pod("p", {"app": "web"}, apart=must(term("zone", app="web"))))
    text = "the pod wants none with app=web where zone=a: there is default/web-0"
    assert found == {"a1": [text], "a2": [text], "b1": []}


def test_three_of_many_pods_are_named() -> None:
    fixture = three_nodes()
    for number in range(5):
        fixture.place(make_pod(f"web-{number}", {"app": "web"}), "b1")
    found = lacks(fixture, make_pod("p", apart=must(term("zone", app="web"))))
    assert found["b1"] == [
        "the pod wants none with app=web where zone=b: there are default/web-0, default/web-1, default/web-2 and 2 more"
    ]


def test_pods_that_want_to_be_apart_from_the_pod_are_named() -> None:
    fixture = three_nodes()
    fixture.place(make_pod("db-0", {"app": "db"}, apart=must(term("host", app="web"))), "a2")
    found = lacks(fixture, make_pod("p", {"app": "web"}))
    assert found == {"a1": [], "a2": ["default/db-0 wants no pod with app=web where host=a2"], "b1": []}


def test_where_the_pods_are_that_a_pod_wants_to_be_near_to() -> None:
    fixture = three_nodes()
    fixture.place(make_pod("db-0", {"app": "db"}), "b1")
    found = lacks(fixture, make_pod("p", near=must(term("zone", app="db"))))
    text = "no pod with app=db where zone=a; such pods are where zone is b"
    assert found == {"a1": [text], "a2": [text], "b1": []}


def test_a_pod_that_wants_to_be_near_to_what_is_not_there() -> None:
    found = lacks(three_nodes(), make_pod("p", near=must(term("zone", app="db"))))
    assert found["b1"] == ["no pod with app=db where zone=b; there is no such pod on any node"]


def test_one_pod_has_to_meet_all_terms() -> None:
    fixture = three_nodes()
    fixture.place(make_pod("db-0", {"app": "db"}), "a1")
    fixture.place(make_pod("db-1", {"app": "db", "tier": "back"}), "b1")
    found = lacks(fixture, make_pod("p", near=must(term("zone", app="db"), term("zone", tier="back"))))
    assert found["a1"] == ["no pod with app=db and tier=back where zone=a; such pods are where zone is b"]


def test_a_node_without_the_label_says_so() -> None:
    fixture = three_nodes()
    fixture.set_node(make_node("c1"))
    found = lacks(fixture, make_pod("p", {"app": "a"}, near=must(term("zone", app="a"))))
    assert found == {"a1": [], "a2": [], "b1": [], "c1": ["the node has no label zone"]}


def test_namespaces_are_named_unless_they_are_the_pods_own() -> None:
    fixture = three_nodes()
    fixture.place(make_pod("db-0", {"app": "db"}, namespace="other"), "b1")
    wanted = msgspec.structs.replace(term("host", app="db"), namespaces=["other"])
    found = lacks(fixture, make_pod("p", apart=must(wanted)))
    assert found["b1"] == ["the pod wants none with app=db of other where host=b1: there is other/db-0"]


def test_all_that_stands_in_the_way_is_named() -> None:
    """The result has but one reason."""
    fixture = three_nodes()
    fixture.place(make_pod("db-0", {"app": "db"}, apart=must(term("host", app="web"))), "a2")
    pod = make_pod("p", {"app": "web"}, near=must(term("zone", app="cache")), apart=must(term("zone", app="db")))
    assert lacks(fixture, pod)["a2"] == [
        "no pod with app=cache where zone=a; there is no such pod on any node",
        "default/db-0 wants no pod with app=web where host=a2",
        "the pod wants none with app=db where zone=a: there is default/db-0",
    ]
