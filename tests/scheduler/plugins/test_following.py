"""The real plugins together: following events row by row ends where looking at everything anew does."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.pod import Pod
from koordinator.scheduler.configuration import default_configuration
from koordinator.scheduler.configuration.koordinator_arguments import LoadAwareSchedulingArgs
from koordinator.scheduler.engine.batch_evaluator import BatchEvaluator
from koordinator.scheduler.engine.cached_results import SharedResults
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.framework import EventHandler
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from tests.examples import examples
from tests.scheduler.plugins.clusters import NODE_NAMES, NOW, OF_NODES, POD_NAMES, ClusterFixture, metrics, nodes, pods

LOAD = LoadAwareSchedulingArgs(usage_thresholds={"cpu": 60}, prod_usage_thresholds={"memory": 50}).completed("args")
FILTERS = (
    *("NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"),
    "LoadAwareScheduling",
)
SCORES = ("TaintToleration", "NodeAffinity", "NodeResourcesFit", "NodeResourcesBalancedAllocation")
STEPS = ("node", "place", "take", "report", "forget", "remove", "later", "look", "look at all", "look at all")


def make_profile(fixture: ClusterFixture) -> Profile:
    (configured,) = default_configuration().profiles
    scores = tuple((name, weight) for name, weight in configured.order.score if name in SCORES)
    order = PluginOrder(pre_filter=FILTERS, filter=FILTERS, score=(*scores, ("LoadAwareScheduling", 1)))
    return Profile("koord-scheduler", {name: fixture.plugins[name] for name in {*FILTERS, *SCORES}}, order)


def tick(fixture: ClusterFixture, now: datetime) -> None:
    fixture.view.now = now
    for plugin in fixture.plugins.values():
        if isinstance(plugin, EventHandler):
            plugin.on_time(now)


def filter_results(evaluation: Evaluation, fixture: ClusterFixture) -> dict[str, tuple[int, list[int]]]:
    """Node -> total and its parts; INFEASIBLE and nothing else where the pod cannot go."""
    evaluation.refresh()
    if evaluation.plan.rejection is not None:
        # No node is looked at for such a pod.
        return {}
    found = {}
    for name, row in fixture.view.columns.row_of.items():
        feasible = bool(evaluation.feasible[row])
        found[name] = int(evaluation.totals[row]), evaluation.scores_of((row,))[0] if feasible else []
    return found


def failures(evaluation: Evaluation, fixture: ClusterFixture) -> set[tuple[str, str, tuple[str, ...]]]:
    names = fixture.view.columns.names
    if evaluation.plan.rejection is not None:
        return set()
    return {
        (
            names[row],
            each.plugin.name,
            tuple(r.text for r in each.plugin.reasons(evaluation.pod, each.state, each.code)),
        )
        for each in evaluation.failures()
        for row in each.rows.tolist()
    }


def mixed(one: Pod, other: Pod) -> Pod:
    """A pod that requests what one does and goes where the other may."""
    spec = msgspec.structs.replace(other.spec, containers=one.spec.containers, init_containers=one.spec.init_containers)
    return msgspec.structs.replace(other, spec=spec)


@settings(max_examples=examples(120))
@given(st.data(), st.sampled_from([0, 3, 10]), st.sampled_from([2, 256]))
def test_following_events_equals_looking_anew(data: st.DataObject, far: int, classes: int) -> None:
    arguments: dict[str, Any] = {"LoadAwareScheduling": LOAD}
    fixture, now = ClusterFixture(arguments), NOW
    for name in OF_NODES:
        # An engine would make its plans anew when a node first offers one of them; these are kept.
        fixture.view.columns.resources.column(name)
    for name in NODE_NAMES:
        fixture.set_node(data.draw(nodes(name)))
    profile = make_profile(fixture)
    incoming: list[Pod] = [data.draw(pods(f"incoming{number}")) for number in range(2)]
    incoming += [mixed(incoming[0], incoming[1])]
    columns, shared = fixture.view.columns, SharedResults()
    # The nearer, the more is done together.
    batch = BatchEvaluator(columns, profile.score_type, far=far, classes=classes)
    following = [Evaluation(profile, fixture.view, fixture.info(pod), shared=shared, batch=batch) for pod in incoming]
    for step in [*data.draw(st.lists(st.sampled_from(STEPS), max_size=16)), "look"]:
        name = data.draw(st.sampled_from(NODE_NAMES))
        if step == "look at all":
            tick(fixture, now)
            for evaluation in following:
                evaluation.refresh()
        elif step == "later":
            now += timedelta(seconds=data.draw(st.integers(1, 120)))
        elif step == "look":
            tick(fixture, now)
            # Each looks at moments of its own, so that they find what they share at versions that others left it at.
            who = data.draw(st.sets(st.sampled_from(range(len(incoming))), min_size=1))
            for evaluation, pod in [(following[index], incoming[index]) for index in sorted(who)]:
                anew = Evaluation(profile, fixture.view, fixture.info(pod))
                assert filter_results(evaluation, fixture) == filter_results(anew, fixture)
                assert evaluation.best().first(99) == anew.best().first(99)
                assert evaluation.first_rejecting_plugins() == anew.first_rejecting_plugins()
                assert evaluation.feasible_count == anew.feasible_count
                assert failures(evaluation, fixture) == failures(anew, fixture)
        elif step == "node" or name not in fixture.machines:
            fixture.set_node(data.draw(nodes(name)))
        elif step == "place":
            fixture.place(data.draw(pods(data.draw(st.sampled_from(POD_NAMES)))), name)
        elif step == "take":
            fixture.take(data.draw(st.sampled_from(POD_NAMES)))
        elif step in ("report", "forget"):
            fixture.report(data.draw(metrics(name, POD_NAMES)) if step == "report" else None, name)
        else:
            fixture.remove_node(name)
