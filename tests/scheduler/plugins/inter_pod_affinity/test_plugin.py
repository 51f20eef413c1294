"""Single stories: what classes share, when the plugin stays out, namespaces, promises, and selectors that are wrong."""

from __future__ import annotations

import pytest

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.api.pod import Pod, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from koordinator.scheduler.configuration.upstream_arguments import InterPodAffinityArgs
from koordinator.scheduler.engine.framework import SKIP_SCORE
from tests.scheduler.plugins.inter_pod_affinity import reference
from tests.scheduler.plugins.inter_pod_affinity.fixtures import ClusterFixture, make_node, make_pod, must, term
from tests.scheduler.plugins.inter_pod_affinity.readings import found_results, found_scores
from tests.scheduler.simulating import simulating

APART = must(term("host", app="a"))


def soft(weight: int, wanted: PodAffinityTerm) -> PodAffinity:
    return PodAffinity(
        preferred_during_scheduling_ignored_during_execution=[
            WeightedPodAffinityTerm(weight=weight, pod_affinity_term=wanted)
        ]
    )


def two_nodes(args: InterPodAffinityArgs | None = None) -> ClusterFixture:
    fixture = ClusterFixture(args)
    fixture.set_node(make_node("n0", zone="z0", host="h0"))
    fixture.set_node(make_node("n1", zone="z1", host="h1"))
    return fixture


def key(fixture: ClusterFixture, pod: Pod) -> object:
    return fixture.profile.class_key(fixture.info(pod))


# Classes.


def test_replicas_share_their_terms() -> None:
    fixture = ClusterFixture()
    one, other = (fixture.info(make_pod(name, {"app": "a"}, apart=must(term("host", app="a")))) for name in "xy")
    assert fixture.plugin.class_key(one) is fixture.plugin.class_key(other)


def test_pods_without_terms_are_one_class_whatever_their_labels() -> None:
    fixture = two_nodes()
    fixture.place(make_pod("p", {"app": "a"}, apart=APART), "n0")
    assert key(fixture, make_pod("x", {"app": "b"})) == key(fixture, make_pod("y", {"app": "c"}))


def test_a_pod_that_others_mind_is_in_a_class_of_its_own() -> None:
    fixture = two_nodes()
    fixture.place(make_pod("p", {"app": "a"}, apart=APART), "n0")
    assert key(fixture, make_pod("x", {"app": "a"})) != key(fixture, make_pod("y", {"app": "b"}))


def test_a_class_returns_when_the_same_terms_do() -> None:
    fixture = two_nodes()
    minded, pod = make_pod("p", {"app": "a"}, apart=APART), fixture.info(make_pod("x", {"app": "a"}))
    kept = fixture.place(minded, "n0")
    before = fixture.profile.class_key(pod)
    fixture.take("p")
    fixture.state.set_pod(kept, "n1")
    assert fixture.profile.class_key(pod) == before


def test_a_pod_without_terms_is_concerned_while_others_have_some() -> None:
    fixture = two_nodes()
    pod = fixture.info(make_pod("x", {"app": "a"}))
    alone = fixture.profile.class_key(pod)
    fixture.place(make_pod("p", {"app": "a"}, apart=APART), "n0")
    assert fixture.profile.class_key(pod) != alone
    fixture.take("p")
    assert fixture.profile.class_key(pod) == alone
    fixture.view.nominations.set(fixture.info(make_pod("q", {"app": "a"}, apart=APART)), "n1")
    assert fixture.profile.class_key(pod) != alone
    fixture.view.nominations.remove("q")
    assert fixture.profile.class_key(pod) == alone


def test_profiles_do_not_share_what_they_have_read() -> None:
    fixture = two_nodes()
    other = ClusterFixture(InterPodAffinityArgs(hard_pod_affinity_weight=7))
    pod = fixture.info(make_pod("x", near=must(term("zone", app="a"))))
    assert fixture.plugin.class_key(pod) is not other.plugin.class_key(pod)


# Staying out.


def test_filter_stays_out_when_nobody_minds() -> None:
    fixture = two_nodes()
    fixture.place(make_pod("p", {"app": "a"}, apart=APART), "n0")
    assert fixture.plugin.pre_filter(fixture.info(make_pod("x", {"app": "b"}))).skip


def test_score_stays_out_without_preferences() -> None:
    fixture = two_nodes()
    fixture.place(make_pod("p", {"app": "a"}, apart=APART), "n0")
    assert fixture.plugin.pre_score(fixture.info(make_pod("x", {"app": "a"}, apart=APART))) is SKIP_SCORE


def test_preferences_of_others_are_ignored_only_by_pods_without_their_own() -> None:
    fixture = two_nodes(InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True))
    fixture.place(make_pod("p", near=soft(5, term("zone", app="a"))), "n1")
    plain, desiring = make_pod("x", {"app": "a"}), make_pod("x", {"app": "a"}, near=soft(1, term("zone", app="c")))
    assert fixture.plugin.pre_score(fixture.info(plain)) is SKIP_SCORE
    assert found_scores(fixture, fixture.evaluation(desiring)) == {"n0": 0, "n1": 100}


# The first of its kind.


def test_the_first_of_its_kind_may_go_where_the_topology_is() -> None:
    fixture = two_nodes()
    fixture.set_node(make_node("bare"))
    pod = make_pod("x", {"app": "a"}, near=must(term("zone", app="a")))
    assert found_results(fixture, fixture.evaluation(pod)) == {"n0": [], "n1": [], "bare": [reference.AFFINITY]}


def test_the_second_of_its_kind_follows_the_first() -> None:
    fixture = two_nodes()
    pod = make_pod("x", {"app": "a"}, near=must(term("zone", app="a")))
    evaluation = fixture.evaluation(pod)
    evaluation.refresh()
    fixture.place(make_pod("p", {"app": "a"}), "n1")
    assert found_results(fixture, evaluation) == {"n0": [reference.AFFINITY], "n1": []}


def test_a_pod_that_wants_to_be_near_others_waits_for_them() -> None:
    fixture = two_nodes()
    pod = make_pod("x", {"app": "b"}, near=must(term("zone", app="a")))
    filter_results = found_results(fixture, fixture.evaluation(pod))
    assert filter_results == {"n0": [reference.AFFINITY], "n1": [reference.AFFINITY]}


# Namespaces.


def selecting(team: str) -> PodAffinityTerm:
    return PodAffinityTerm(
        label_selector=LabelSelector(match_labels={"app": "a"}),
        topology_key="zone",
        namespace_selector=LabelSelector(match_labels={"team": team}),
    )


def test_a_namespace_gets_the_label_that_an_own_term_selects() -> None:
    fixture = two_nodes()
    fixture.set_namespace("other", {"team": "y"})
    fixture.place(make_pod("p", {"app": "a"}, namespace="other"), "n0")
    pod = fixture.info(make_pod("x", apart=must(selecting("x"))))
    assert found_results(fixture, fixture.evaluation(pod)) == {"n0": [], "n1": []}
    before = fixture.profile.class_key(pod)
    fixture.set_namespace("other", {"team": "x"})
    assert fixture.profile.class_key(pod) != before
    assert found_results(fixture, fixture.evaluation(pod)) == {"n0": [reference.ANTI_AFFINITY], "n1": []}


def test_a_namespace_gets_the_label_that_a_term_of_another_pod_selects() -> None:
    fixture = two_nodes()
    fixture.set_namespace("default", {})
    fixture.place(make_pod("p", namespace="other", apart=must(selecting("x"))), "n0")
    pod = fixture.info(make_pod("x", {"app": "a"}))
    assert found_results(fixture, fixture.evaluation(pod)) == {"n0": [], "n1": []}
    before = fixture.profile.class_key(pod)
    fixture.set_namespace("default", {"team": "x"})
    assert fixture.profile.class_key(pod) != before
    assert found_results(fixture, fixture.evaluation(pod)) == {"n0": [reference.EXISTING], "n1": []}


# Promises.


def test_a_nominated_pod_is_minded_before_it_is_there() -> None:
    fixture = two_nodes()
    nominated = fixture.info(make_pod("p", {"app": "b"}, apart=APART))
    fixture.view.nominations.set(nominated, "n0")
    pod = fixture.info(make_pod("x", {"app": "a"}))
    evaluation = fixture.evaluation(pod)
    assert found_results(fixture, evaluation) == {"n0": [], "n1": []}
    with simulating(fixture.state, fixture.view.columns.row_of["n0"], (), (nominated,)):
        assert found_results(fixture, evaluation) == {"n0": [reference.EXISTING], "n1": []}
    assert found_results(fixture, evaluation) == {"n0": [], "n1": []}


# What is wrong.

BROKEN = PodAffinityTerm(
    label_selector=LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator="Above")]),
    topology_key="zone",
)


@pytest.mark.parametrize("affinity", [must(BROKEN), soft(1, BROKEN)], ids=["required", "preferred"])
def test_a_selector_that_cannot_be_read_rejects_every_node(affinity: PodAffinity) -> None:
    fixture = two_nodes()
    rejection = fixture.plugin.pre_filter(fixture.info(make_pod("x", near=affinity))).rejection
    assert rejection is not None
    assert rejection.unresolvable
    assert rejection.text.startswith("parsing pod: ")
    assert "'Above'" in rejection.text


def test_a_pod_on_a_node_with_such_a_selector_minds_nobody_by_that_list() -> None:
    fixture = two_nodes()
    fixture.place(make_pod("p", near=soft(1, term("zone", app="a")), apart=must(BROKEN, term("zone", app="a"))), "n0")
    evaluation = fixture.evaluation(make_pod("x", {"app": "a"}))
    assert found_results(fixture, evaluation) == {"n0": [], "n1": []}
    assert found_scores(fixture, evaluation) == {"n0": 100, "n1": 0}


def test_terms_of_pods_that_are_gone_are_forgotten() -> None:
    fixture = two_nodes()
    fixture.place(make_pod("other", apart=must(term("host", app="b"))), "n0")
    fixture.place(make_pod("p", {"app": "a"}, apart=APART), "n0")
    pod = fixture.info(make_pod("x", {"app": "a"}))
    assert fixture.plugin.context_key(pod) is not None
    fixture.take("p")
    assert fixture.plugin.context_key(pod) is None
    assert fixture.plugin.pre_filter(pod).skip


def test_a_pod_with_other_terms_than_before_is_looked_at_again() -> None:
    fixture = two_nodes()
    fixture.place(make_pod("p", apart=must(term("host", app="b"))), "n0")
    evaluation = fixture.evaluation(make_pod("x", {"app": "b"}))
    assert found_results(fixture, evaluation) == {"n0": [reference.EXISTING], "n1": []}
    fixture.place(make_pod("p"), "n0")
    assert found_results(fixture, evaluation) == {"n0": [], "n1": []}
