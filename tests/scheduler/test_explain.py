"""What the memory of decisions says about a pod."""

from __future__ import annotations

from datetime import UTC, datetime

from koordinator.scheduler.engine.decision import Attempt, DecisionLog, Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain import Sources, explain_pod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue
from tests.scheduler.fakes import FirstChoice, describe, make_node, make_pod, make_profile, make_state

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_queue() -> SchedulingQueue:
    return SchedulingQueue(lambda pod, queued_at: (queued_at,), lambda pod: None, lambda: 0.0)


def make_sources(view: ClusterView, log: DecisionLog, queue: SchedulingQueue) -> Sources:
    profile = make_profile(view)
    return Sources(log, queue, view, {profile.scheduler_name: profile}, lambda: NOW, lambda: 0.0)


def test_a_placed_pod_shows_its_best_nodes_and_their_scores() -> None:
    state = make_state([make_node("a", labels={"rank": "1"}), make_node("b", labels={"rank": "2"})])
    result = Engine(make_profile(state.view), state, FirstChoice()).decide(describe(make_pod("p")), NOW)
    assert isinstance(result, Placement)
    log = DecisionLog()
    log.add("default/p", Attempt(NOW, 1, placement=result))
    assert explain_pod(make_sources(state.view, log, make_queue()), "default", "p") == {
        "pod": "default/p",
        "attempts": [
            {
                "time": "2026-01-01T00:00:00.000000Z",
                "attempt": 1,
                "result": "placed",
                "node": "b",
                "evaluatedNodes": 2,
                "feasibleNodes": 2,
                "otherNodesRuledOutBy": [],
                "topNodes": [
                    {"node": "b", "score": 300, "scoreByPlugin": {"Fit": 100, "Rank": 200}},
                    {"node": "a", "score": 200, "scoreByPlugin": {"Fit": 100, "Rank": 100}},
                ],
            }
        ],
    }


def test_a_parked_pod_shows_what_ruled_nodes_out_and_what_would_free_it() -> None:
    state = make_state([make_node(f"n{number}", cpu="0") for number in range(5)])
    pod = describe(make_pod("p"))
    result = Engine(make_profile(state.view), state, FirstChoice()).decide(pod, NOW)
    assert isinstance(result, Rejection)
    log, queue = DecisionLog(), make_queue()
    queue.add(pod)
    entry = queue.pop()
    assert entry is not None
    queue.park(entry, result.wakes_on, result.message)
    log.add("default/p", Attempt(NOW, 1, rejection=result))
    document = explain_pod(make_sources(state.view, log, queue), "default", "p")
    assert document is not None
    wakes_on = ["Node/Add", "Node/UpdateNodeAllocatable", "Pod/Delete"]
    assert document["queue"] == {
        "pool": "unschedulable",
        "attempts": 1,
        "reason": "0/5 nodes are available: 5 Insufficient cpu.",
        "wakesOn": wakes_on,
        "triedAgainWhen": [
            "a node is added",
            "a node offers more, or an annotation of it changes",
            "a pod on some node finishes or is deleted",
        ],
    }
    assert document["attempts"][0]["ruledOut"] == [
        {
            "plugin": "Fit",
            "reasons": ["Insufficient cpu"],
            "nodes": 5,
            "examples": ["n0", "n1", "n2"],
            "evictingPodsMayHelp": True,
        }
    ]


def test_nothing_is_known_of_a_strange_pod() -> None:
    sources = make_sources(make_state([]).view, DecisionLog(), make_queue())
    assert explain_pod(sources, "default", "who") is None


def test_the_memory_is_bounded_in_pods_and_attempts() -> None:
    log = DecisionLog(pods=2, attempts=3)
    for number in range(5):
        log.add("default/a", Attempt(NOW, number, error="x"))
    log.add("default/b", Attempt(NOW, 1, error="x"))
    log.add("default/a", Attempt(NOW, 5, error="x"))
    log.add("default/c", Attempt(NOW, 1, error="x"))
    assert [attempt.number for attempt in log.attempts("default/a")] == [3, 4, 5]
    assert log.attempts("default/b") == ()
