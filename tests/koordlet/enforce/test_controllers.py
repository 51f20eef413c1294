"""Extension controllers: when they run, what they may use, and what their failures cost."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.meta import ObjectReference
from koordinator.koordlet.agent import Agent
from koordinator.koordlet.enforce.controller import Controller, ControllerError, NodeAccess
from koordinator.koordlet.enforce.enforcement import Enforcement
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Explanation, Priority
from koordinator.koordlet.enforce.plugins import CONTROLLERS
from koordinator.koordlet.enforce.strategies.snapshot import Decision
from koordinator.koordlet.observe.metric_cache.kinds import NODE_CPU_USAGE, POD_CPU_USAGE
from koordinator.koordlet.options import EnforcementOptions
from koordinator.node.kernel_files import CPU_QUOTA, Target
from tests.koordlet.enforce.extended_node import NAME, is_suppressed, loaded, pass_seconds, run
from tests.koordlet.suppressed_node import CLASS, JOB, SuppressedNode

QUOTA = 50_000
LIMITED = Decision(
    (DesiredSetting(NAME, Target(CPU_QUOTA, CLASS), QUOTA, "a test", Priority.POD),), "it is to have half a core"
)

OF_ANOTHER = Decision((DesiredSetting("CPUSuppress", Target(CPU_QUOTA, CLASS), QUOTA, "a test"),), "")


class Scripted:
    """Does what the test says; ``seen`` is what it was given."""

    def __init__(self) -> None:
        self.seen: list[NodeAccess] = []
        self.act: Callable[[NodeAccess], Any] = lambda _: LIMITED
        self.closed_after: int | None = None
        self.closing: Exception | None = None
        """What its end raises."""

    def reconcile(self, node: NodeAccess) -> Any:
        self.seen.append(node)
        return self.act(node)

    def close(self) -> None:
        self.closed_after = len(self.seen)
        if self.closing is not None:
            raise self.closing


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def node(tmp_path: Path, scripted: Scripted) -> SuppressedNode:
    made = SuppressedNode(tmp_path / "machine")
    made.follows_configuration = True
    controller = Controller(NAME, 2.0, scripted.reconcile, deadline=5.0, close=scripted.close)
    made.plugins = loaded(tmp_path, CONTROLLERS, controller)
    return made


def test_it_starts_with_the_first_picture_of_the_pods_and_ends_with_koordlet(
    node: SuppressedNode, scripted: Scripted
) -> None:
    node.kubelet_is_up = False

    async def story(_: Agent) -> None:
        await pass_seconds(node, 15)
        assert scripted.seen == []
        node.kubelet_is_up = True
        await pass_seconds(node, 15)

    run(node, story)
    first = scripted.seen[0].snapshot
    assert [usage.pod.uid for usage in first.pods] == ["0000-web", JOB]
    assert scripted.closed_after == len(scripted.seen) >= 3


def test_what_it_desires_wins_by_its_priority_and_is_explained(node: SuppressedNode, scripted: Scripted) -> None:
    async def story(_: Agent) -> None:
        await pass_seconds(node, 8)
        assert node.quota == QUOTA

        explained: list[Explanation | None] = []

        def explain(access: NodeAccess) -> Decision:
            explained.append(access.explain(Target(CPU_QUOTA, CLASS)))
            return Decision((), "nothing any more")

        scripted.act = explain
        await pass_seconds(node, 4)
        assert explained[0] is not None
        assert explained[0].setting.winner.owner == NAME
        assert is_suppressed(node)

    run(node, story)


def test_it_reads_the_metric_cache_on_its_own_thread(node: SuppressedNode, scripted: Scripted) -> None:
    found: list[Any] = []

    def look(access: NodeAccess) -> Decision:
        cpu = access.samples(NODE_CPU_USAGE, 3)
        found.append((len(cpu), access.averages(POD_CPU_USAGE, 3, [JOB, "none"]), threading.current_thread()))
        return Decision((), "")

    async def story(_: Agent) -> None:
        await pass_seconds(node, 10)
        scripted.act = look
        await pass_seconds(node, 3)

    run(node, story)
    count, averages, thread = found[0]
    assert count >= 3
    assert (len(averages), thread.name) == (1, f"plugin {NAME}")


def test_it_starts_while_a_change_of_the_configuration_waits_for_a_pass(
    node: SuppressedNode, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconfigure = Enforcement.reconfigure

    async def wait_for_a_pass(enforcement: Enforcement) -> None:
        """One that is under way from before the pods are known until all controllers could have started."""
        await enforcement.controllers.has_pods.wait()
        await asyncio.sleep(0)
        await reconfigure(enforcement)

    monkeypatch.setattr(Enforcement, "reconfigure", wait_for_a_pass)
    node.kubelet_is_up = False

    async def story(_: Agent) -> None:
        await pass_seconds(node, 5)
        node.configure(cpu_suppress_interval_seconds="2")
        await pass_seconds(node, 2)
        node.kubelet_is_up = True
        await pass_seconds(node, 15)
        assert len(scripted.seen) > 1

    run(node, story)


def test_who_goes_on_after_the_end_of_the_call_is_refused(node: SuppressedNode, scripted: Scripted) -> None:
    async def story(_: Agent) -> None:
        await pass_seconds(node, 5)
        late = scripted.seen[0]
        refused: list[ControllerError] = []

        def ask_late(_: NodeAccess) -> Decision:
            try:
                late.event(ObjectReference("v1", "Node", "", "n"), "Normal", "Late", "too late")
            except ControllerError as error:
                refused.append(error)
            return Decision((), "")

        scripted.act = ask_late
        await pass_seconds(node, 3)
        assert "is over" in str(refused[0])

    run(node, story)


def working(text: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith("koordlet_plugin_working{")]
    return line.rpartition(" ")[2]


def test_one_that_raises_costs_itself_alone_and_is_called_again(
    node: SuppressedNode, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: NodeAccess) -> Decision:
        raise OSError("no such device")

    async def story(agent: Agent) -> None:
        await pass_seconds(node, 8)
        scripted.act = fail
        await pass_seconds(node, 10)
        # What it desired stays, as where a figure is missing; everything else goes on.
        assert node.quota == QUOTA
        text = agent.metrics.both.exposition()[0].decode()
        assert working(text) == "0.0"
        assert f'loop_errors_total{{loop="controller {NAME}"}} ' in text
        scripted.act = lambda _: Decision((), "nothing any more")
        await pass_seconds(node, 40)
        assert is_suppressed(node)

    with caplog.at_level(logging.WARNING):
        assert working(run(node, story)) == "1.0"
    assert f"loop controller {NAME}: {NAME} of ours 1.0 raised OSError: no such device" in caplog.text


@pytest.mark.parametrize("made", [None, OF_ANOTHER])
def test_what_is_no_decision_of_its_own_is_refused(node: SuppressedNode, scripted: Scripted, made: Any) -> None:
    scripted.act = lambda _: made

    async def story(_: Agent) -> None:
        await pass_seconds(node, 5)
        assert is_suppressed(node)

    assert working(run(node, story)) == "0.0"


def test_one_that_never_returns_is_named_and_not_called_again(
    node: SuppressedNode, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    end, going_on = threading.Event(), list[asyncio.Task[None]]()
    scripted.act = lambda _: end.wait()
    node.collect_interval = 2.0
    node.enforcement = EnforcementOptions(*(2,) * 4)

    async def story(agent: Agent) -> None:
        await node.pass_seconds(8)
        assert is_suppressed(node)
        await node.clock.advance(200)
        assert len(scripted.seen) == 1
        assert f"controller {NAME} has not succeeded for" in agent.loops.check()
        going_on.append(asyncio.create_task(go_on()))

    async def go_on() -> None:
        """Time passes while koordlet ends."""
        while "left behind" not in caplog.text:
            await node.clock.advance(1)

    with caplog.at_level(logging.WARNING):
        assert working(run(node, story)) == "0.0"
    end.set()
    assert f"{NAME} of ours 1.0 took longer than 5 s" in caplog.text
    assert f"{NAME} of ours 1.0 has not returned for" in caplog.text
    assert f"{NAME} of ours 1.0 does not end: it is left behind" in caplog.text


def test_one_that_fails_at_its_end_is_not_said_to_go_on(
    node: SuppressedNode, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    scripted.closing = TimeoutError("the sensor does not respond")

    async def story(_: Agent) -> None:
        await pass_seconds(node, 5)

    run(node, story)
    assert f"{NAME} of ours 1.0 has failed at its end" in caplog.text
    assert "left behind" not in caplog.text


def test_it_is_switched_off_and_on_by_its_name(node: SuppressedNode, scripted: Scripted) -> None:
    async def story(agent: Agent) -> None:
        await pass_seconds(node, 8)
        assert node.quota == QUOTA
        node.configure(qos_extension_plugins=f"{NAME}=false")
        await pass_seconds(node, 3)
        assert is_suppressed(node)
        calls = len(scripted.seen)
        assert "koordlet_plugin_working{" not in agent.metrics.both.exposition()[0].decode()
        await pass_seconds(node, 5)
        assert len(scripted.seen) == calls
        node.configure(qos_extension_plugins=f"{NAME}=true")
        await pass_seconds(node, 3)
        assert node.quota == QUOTA

    run(node, story)
