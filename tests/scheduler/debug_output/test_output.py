"""What the debug flags have logged of a decision."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from koordinator.api.annotations import RESERVATION_NAME
from koordinator.api.pod import Pod
from koordinator.scheduler.debug_output import DebugOutput, DebugSettings, diagnosis
from koordinator.scheduler.engine.columns import Ints, Rows
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.node_unschedulable import NodeUnschedulable
from tests.scheduler.explain.scene import NOW, Scene, make_node, make_pod
from tests.scheduler.plugins.coscheduling.gang_fakes import member, with_annotations
from tests.scheduler.plugins.coscheduling.test_job_preemption import important, running
from tests.scheduler.plugins.coscheduling.test_job_preemption import profile as job_profile
from tests.scheduler.plugins.coscheduling.test_plugin import nodes, run
from tests.scheduler.running_scheduler import RunningScheduler, simulate

LOGGER = "koordinator.scheduler.debug_output"


def logged(
    caplog: pytest.LogCaptureFixture, scene: Scene, settings: DebugSettings, cpu: str = "1", **options: Any
) -> list[str]:
    """The lines about one decision on a pod."""
    output = DebugOutput(scene.view, settings, lambda: NOW, **options)
    info = scene.info(make_pod("p", cpu=cpu))
    result = scene.engine.decide(info, NOW)
    with caplog.at_level(logging.INFO, LOGGER):
        output.decided(info, scene.profile, result)
    return caplog.messages


def test_the_best_nodes_are_a_table_of_weighted_scores(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(make_node("small", cpu="2"), make_node("large", cpu="8"))
    heading, titles, _, *rows = logged(caplog, scene, DebugSettings(scores=5))
    names = heading.partition("plugins:[")[2].rstrip("]").split()
    assert heading.startswith("Top5 scores for Pod: default/p, feasibleNodes: 2, plugins:[")
    assert titles == f"| # | Pod | Node | Score | {' | '.join(names)} |"
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[:3] for row in cells] == [["0", "default/p", "large"], ["1", "default/p", "small"]]
    assert all(int(row[3]) == sum(map(int, row[4:])) for row in cells)


def test_the_table_has_as_many_nodes_as_requested(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(*(make_node(f"n{number}") for number in range(5)))
    assert len(logged(caplog, scene, DebugSettings(scores=2))) == 5


def test_a_pod_that_fits_nowhere_has_no_table(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, Scene(make_node("a", cpu="1")), DebugSettings(scores=2), cpu="9") == []


def test_every_node_that_is_rejected_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(make_node("a"), make_node("b", unschedulable=True))
    assert logged(caplog, scene, DebugSettings(filters=True)) == [
        'Failed to filter for Pod "default/p" on Node "b" (pass 0), failedPlugin: NodeUnschedulable, '
        "reason: node(s) were unschedulable"
    ]


def test_a_diagnosis_has_every_node_by_plugin_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(make_node("b", cpu="1"), make_node("a", cpu="1"), make_node("c", unschedulable=True))
    (line,) = logged(caplog, scene, DebugSettings(diagnosis=True, blocking=True), cpu="2")
    head, _, document = line.partition(": $")
    assert head == "dump diagnosis for default/p, targetPod: default/p/uid-p"
    assert json.loads(document) == {
        "timestamp": "2026-01-01T00:00:00Z",
        "questionedKey": "default/p",
        "isRootCausePod": True,
        "scheduleDiagnosis": {
            "alreadyWaitForBound": 0,
            "nodeFailedDetails": [
                {
                    "failedPlugin": "NodeResourcesFit",
                    "reason": "Insufficient cpu",
                    "preemptMightHelp": False,
                    "failedNodes": ["a", "b"],
                },
                {
                    "failedPlugin": "NodeUnschedulable",
                    "reason": "node(s) were unschedulable",
                    "preemptMightHelp": False,
                    "failedNodes": ["c"],
                },
            ],
        },
        "preemptionDiagnosis": None,
    }


def test_members_of_a_gang_are_diagnosed_in_its_name(caplog: pytest.LogCaptureFixture) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.scheduler.debug.settings.diagnosis = fixture.scheduler.debug.settings.blocking = True
        for number in range(4):
            fixture.api.store(member("g", number, 4))
        await fixture.until_idle()

    with caplog.at_level(logging.INFO, LOGGER):
        run(story, 2)
    documents = [json.loads(line.partition(": $")[2]) for line in caplog.messages if line.startswith("dump diagnosis")]
    root, other = documents[:2]
    assert [(each["questionedKey"], each["isRootCausePod"]) for each in (root, other)] == [
        ("default/g", True),
        ("default/g", False),
    ]
    assert root["scheduleDiagnosis"].keys() == {"alreadyWaitForBound", "nodeOfferSlot", "nodeFailedDetails"}
    assert root["scheduleDiagnosis"]["nodeOfferSlot"] == {"n0": 2}
    assert other["preFilterMessage"].startswith('GangGroup "default/g" gets rejected due to member Pod "default/g-2"')
    assert "nodeFailedDetails" not in other["scheduleDiagnosis"]


def preempting(pods: list[Pod], caplog: pytest.LogCaptureFixture) -> list[Any]:
    """What is said of how room for the pods was looked for, where two less important ones run."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.scheduler.debug.settings.diagnosis = fixture.scheduler.debug.settings.blocking = True
        for pod in (running("low-0", 0), running("low-1", 1)):
            fixture.api.store(pod)
        await fixture.until_idle()
        for pod in pods:
            fixture.api.store(pod)
        await fixture.until_idle()

    with caplog.at_level(logging.INFO, LOGGER):
        simulate(story, lambda: nodes(1, 1), job_profile)
    documents = [json.loads(line.partition(": $")[2]) for line in caplog.messages if line.startswith("dump diagnosis")]
    return [document["preemptionDiagnosis"] for document in documents]


def test_a_diagnosis_says_who_leaves_for_whom(caplog: pytest.LogCaptureFixture) -> None:
    first, *_ = preempting([important(member("g", number, 2)) for number in range(2)], caplog)
    victims = [
        {"nodeName": f"n{number}", "possibleVictims": [{"namespace": "default", "name": name, "uid": f"uid-{name}"}]}
        for number, name in enumerate(("low-0", "low-1"))
    ]
    assert first == {
        "dryRunFilterDiagnosis": None,
        "otherDiagnosis": {
            "TriggerPodKey": "default/g-0",
            "preemptorKey": "default/g",
            "reason": "preempt success",
            "message": "preempt success, alreadyWaitingForBound: 0/2",
            "podToNominatedNode": {"default/g-0": "n0", "default/g-1": "n1"},
            "victims": victims,
        },
    }


def test_a_diagnosis_says_that_nobody_leaves(caplog: pytest.LogCaptureFixture) -> None:
    first, *others = preempting([important(member("g", number, 3)) for number in range(3)], caplog)
    why = "0/2 nodes are available: 2 Insufficient cpu."
    assert first["otherDiagnosis"] == {
        "TriggerPodKey": "default/g-0",
        "preemptorKey": "default/g",
        "reason": "preemption not helpful",
        "message": why,
    }
    tried = "preemption already attempted"
    message = f"{tried} by default/g-0 with message {why}"
    assert [each["otherDiagnosis"] for each in others] == [
        {"TriggerPodKey": f"default/g-{number}", "reason": tried, "message": message} for number in (1, 2)
    ]


def test_a_single_pod_is_its_own_preemptor(caplog: pytest.LogCaptureFixture) -> None:
    (found,) = preempting([important(make_pod("p"))], caplog)
    assert (found["otherDiagnosis"]["preemptorKey"], found["otherDiagnosis"]["reason"]) == (
        "default/p",
        "preempt success",
    )


def test_a_pod_that_stands_for_a_reservation_is_diagnosed_in_its_name() -> None:
    scene = Scene(make_node("a", cpu="1"))
    info = scene.info(with_annotations(make_pod("uid", cpu="2"), {RESERVATION_NAME: "r"}))
    evaluation = Evaluation(scene.profile, scene.view, info)
    evaluation.refresh()
    assert diagnosis(info, evaluation, scene.view.columns, NOW)["questionedKey"] == "r"


def test_a_pod_that_is_placed_has_no_diagnosis(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, Scene(make_node("a")), DebugSettings(diagnosis=True, blocking=True)) == []


def test_a_diagnosis_waits_for_its_turn_unless_told_otherwise(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(make_node("a", cpu="1"))
    assert logged(caplog, scene, DebugSettings(diagnosis=True), cpu="2") == []


def test_diagnoses_that_wait_are_written(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(make_node("a", cpu="1"))
    info = scene.info(make_pod("p", cpu="2"))

    async def story() -> None:
        output = DebugOutput(scene.view, DebugSettings(diagnosis=True), lambda: NOW)
        writing = asyncio.create_task(output.run())
        output.decided(info, scene.profile, scene.engine.decide(info, NOW))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)

    with caplog.at_level(logging.INFO, LOGGER):
        asyncio.run(story())
    assert [message[:18] for message in caplog.messages] == ["dump diagnosis for"]


def test_diagnoses_beyond_what_may_wait_are_dropped_and_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(make_node("a", cpu="1"))
    output = DebugOutput(scene.view, DebugSettings(diagnosis=True), lambda: NOW, queue_size=1)
    info = scene.info(make_pod("p", cpu="2"))
    result = scene.engine.decide(info, NOW)
    for _ in range(2):
        output.decided(info, scene.profile, result)
    assert caplog.messages == ["Diagnosis queue is full, dropping diagnosis for default/p"]


def test_a_plugin_that_raises_is_logged_and_nothing_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(make_node("a"))
    info = scene.info(make_pod("p"))
    result = scene.engine.decide(info, NOW)

    def broken(plugin: NodeUnschedulable, pod: PodInfo, state: object, rows: Rows) -> Ints:
        raise ZeroDivisionError("x")

    monkeypatch.setattr(NodeUnschedulable, "filter", broken)
    DebugOutput(scene.view, DebugSettings(filters=True), lambda: NOW).decided(info, scene.profile, result)
    assert caplog.messages == ["debug output about pod default/p failed"]
