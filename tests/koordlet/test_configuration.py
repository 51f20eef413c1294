"""The ConfigMap of koordlet: what it changes while koordlet runs, and what becomes of mistakes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from koordinator.api.annotations import KOORDLET_CONFIGURATION
from koordinator.api.kinds import CONFIG_MAPS, EVENTS, NODE_RESOURCE_TOPOLOGIES
from koordinator.cluster.nodes.simulated_files import SimulatedFiles
from koordinator.koordlet.command_line import parse_options
from koordinator.koordlet.configuration import (
    LIVE_FLAGS,
    LIVE_GATES,
    REASON,
    InvalidConfigurationError,
    read_configuration,
)
from koordinator.koordlet.options import Options
from koordinator.kube.errors import ApiStatusError
from tests.koordlet.enforce.test_evictions import evicted, pressed_node
from tests.koordlet.node_under_test import NodeUnderTest, play
from tests.koordlet.suppressed_node import NO_QUOTA, SuppressedNode

PLACE = ("koordlet-config", "koordinator-system")


@pytest.fixture
def node(tmp_path: Path) -> SuppressedNode:
    made = SuppressedNode(tmp_path)
    made.follows_configuration = True
    return made


def events(node: NodeUnderTest) -> list[str]:
    return [event["message"] for event in node.api.all(EVENTS) if event["reason"] == REASON]


def test_a_strategy_is_switched_off_and_on_while_koordlet_runs(node: SuppressedNode) -> None:
    async def story(_: NodeUnderTest) -> None:
        await node.pass_seconds(5)
        assert node.quota == node.wanted
        node.configure(feature_gates="BECPUSuppress=false")
        await node.pass_seconds(2)
        assert node.quota == NO_QUOTA
        node.configure(feature_gates="BECPUSuppress=true")
        # By the samples that were there already: an agent that starts waits until it has measured.
        await node.pass_seconds(2)
        assert node.quota == node.wanted

    play(node, story)


def test_what_was_there_before_the_start_holds_from_the_first_pass_on(node: SuppressedNode) -> None:
    node.configure(feature_gates="BECPUSuppress=false")

    async def story(_: NodeUnderTest) -> None:
        for _second in range(5):
            await node.pass_seconds(1)
            assert node.quota == NO_QUOTA

    play(node, story)


class WatchedFiles(SimulatedFiles):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, path: str, content: str) -> None:
        self.writes.append(path)
        super().write(path, content)


def test_an_interval_changes_and_nothing_is_written_anew(node: SuppressedNode) -> None:
    node.kernel_files = kernel = WatchedFiles()

    async def story(_: NodeUnderTest) -> None:
        await node.pass_seconds(5)
        before = node.quota
        assert kernel.writes
        kernel.writes.clear()
        node.configure(cpu_suppress_interval_seconds="60")
        await node.pass_seconds(2)
        assert kernel.writes == []
        node.pod_cores = 1.0
        await node.pass_seconds(20)
        assert node.quota == before != node.wanted
        node.api.remove(CONFIG_MAPS, *PLACE)
        await node.pass_seconds(10)
        assert node.quota == node.wanted

    play(node, story)


def test_evictions_are_switched_on_and_off(tmp_path: Path) -> None:
    node = pressed_node(tmp_path, 49, 48)
    node.gates = ()
    node.follows_configuration = True

    async def evictions_in(seconds: int) -> int:
        """The memory stays used, whoever goes."""
        before = evicted(node)
        await node.pass_seconds(seconds)
        node.pods = [pod for pod in node.pods if pod["metadata"]["name"] not in evicted(node)]
        return len(evicted(node)) - len(before)

    async def story(_: NodeUnderTest) -> None:
        assert await evictions_in(10) == 0
        node.configure(feature_gates="BEMemoryEvict=true", memory_evict_cool_time_seconds="1000")
        assert await evictions_in(15) == 1
        node.configure(memory_evict_cool_time_seconds="1")
        assert await evictions_in(15) == 0
        node.configure(feature_gates="BEMemoryEvict=true", memory_evict_cool_time_seconds="1")
        assert await evictions_in(15) == 1

    play(node, story)


def test_a_mistake_refuses_all_of_it_with_one_event_and_the_last_good_one_stays(node: SuppressedNode) -> None:
    async def story(_: NodeUnderTest) -> None:
        node.configure(feature_gates="BECPUSuppress=false")
        await node.pass_seconds(5)
        node.configure(feature_gates="BECPUSuppress=true,CPUBurts=true", cpu_supress_interval_seconds="1", v="loud")
        await node.pass_seconds(5)
        assert node.quota == NO_QUOTA

    play(node, story)
    (note,) = events(node)
    version = note.partition("resourceVersion ")[2].partition(" ")[0]
    assert note == (
        f"refused, resourceVersion {version} stays in force: "
        "data.feature-gates: 'CPUBurts' is not usable: did you mean CPUBurst?; "
        "data.cpu-supress-interval-seconds: '1' is not usable: this is no flag that can change while koordlet runs;"
        " did you mean cpu-suppress-interval-seconds?; "
        "data.v: 'loud' is not usable: a whole number"
    )


def test_the_topology_says_which_is_in_force(node: SuppressedNode) -> None:
    node.machine.write_numa_memory(0, 16 << 20)

    def said() -> dict[str, str] | None:
        annotations = node.api.all(NODE_RESOURCE_TOPOLOGIES)[0]["metadata"]["annotations"]
        text = annotations.get(KOORDLET_CONFIGURATION)
        return None if text is None else json.loads(text)

    def version() -> str:
        return str(node.api.document(CONFIG_MAPS, *PLACE)["metadata"]["resourceVersion"])

    async def story(_: NodeUnderTest) -> None:
        await node.pass_seconds(10)
        assert said() is None
        node.configure(v="2")
        await node.pass_seconds(5)
        good = {"resourceVersion": version(), "since": "2026-01-01T00:00:10Z"}
        assert said() == good
        node.configure(v="loud")
        await node.pass_seconds(5)
        refused = f"resourceVersion {version()}: data.v: 'loud' is not usable: a whole number"
        assert said() == good | {"refused": refused}
        node.api.remove(CONFIG_MAPS, *PLACE)
        await node.pass_seconds(5)
        assert said() == {}

    play(node, story)


def test_a_configuration_that_may_not_be_read_delays_the_start_for_ten_seconds(
    node: SuppressedNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    refusal = ApiStatusError(403, "Forbidden", "no right to list configmaps")
    node.api.fault = lambda request, _: refusal if request.plural == "configmaps" else None

    async def story(_: NodeUnderTest) -> None:
        await node.pass_seconds(20)
        assert node.quota == node.wanted

    play(node, story)
    assert "koordinator-system/koordlet-config cannot be read, the flags of the command line hold" in caplog.text


def read(data: Mapping[str, str], *arguments: str) -> Options:
    watched = parse_options(arguments, {"NODE_NAME": "n"}).configuration
    assert watched is not None
    return read_configuration(watched.read, data)


def test_flags_count_as_if_they_stood_at_the_end_of_the_command_line() -> None:
    command_line = ("--feature-gates=CPUEvict=true,MemoryEvict=true", "--reconcile-interval-seconds=5", "--v=1")
    found = read({"feature-gates": "CPUEvict=false", "v": "4\n"}, *command_line)
    gates = [found.features.enabled(name) for name in ("CPUEvict", "MemoryEvict")]
    assert (gates, found.enforcement.reconcile_interval, found.verbosity) == ([False, True], 5, 4)


def test_every_flag_and_gate_that_may_change_is_taken() -> None:
    gates = ",".join(f"{name}=true" for name in LIVE_GATES)
    texts = {"feature-gates": gates, "observe-only": "true", "qos-extension-plugins": "example.com/a=false"}
    found = read({name: texts.get(name, "7") for name in LIVE_FLAGS})
    taken = found.enforcement
    assert (taken.observe_only, found.plugins) == (True, {"example.com/a": False})
    assert (found.verbosity, taken.reconcile_interval, taken.cpu_suppress_interval, taken.reassert_interval) == (7,) * 4
    assert (taken.cpu_evict_interval, taken.cpu_evict_cool_down) == (7, 7)
    assert (taken.memory_evict_interval, taken.memory_evict_cool_down) == (7, 7)
    assert all(map(found.features.enabled, LIVE_GATES))


@pytest.mark.parametrize("flag", sorted(set(LIVE_FLAGS) - {"feature-gates", "observe-only", "qos-extension-plugins"}))
def test_a_number_that_fits_no_time_is_refused(flag: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="is not usable: a whole number"):
        read({flag: "9" * 400})


@pytest.mark.parametrize("data", [{"v": "x" * 900_000}, {f"key-{number}": "" for number in range(5000)}])
def test_what_is_said_of_mistakes_is_short(data: Mapping[str, str]) -> None:
    with pytest.raises(InvalidConfigurationError) as raised:
        read(data)
    assert len(str(raised.value).encode()) <= 1024


def test_a_long_value_does_not_hide_the_other_mistakes() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"data\.reconcile-interval-seconds: '1s'"):
        read({"v": "x" * 900_000, "reconcile-interval-seconds": "1s"})


def test_the_key_that_the_original_names_and_does_not_read_is_no_mistake() -> None:
    assert read({"qos-plugin-extra-configs": "{}"}).verbosity == 0


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("addr", ":9316", "no flag that can change while koordlet runs; allowed are feature-gates, v, "),
        ("observe-only", "maybe", "data.observe-only: 'maybe' is not usable"),
        ("qos-extension-plugins", "a", "data.qos-extension-plugins: 'a' is not usable: write NAME=true or NAME=false"),
        ("enable-pprof", "true", "no flag that can change while koordlet runs"),
        ("feature-gates", "Accelerators=true", "data.feature-gates Accelerators: True is not usable: the command line"),
        ("feature-gates", "AllAlpha=true", "the command line alone switches this gate"),
        ("feature-gates", "CPUEvict", "write NAME=true or NAME=false"),
        ("reconcile-interval-seconds", "1s", "data.reconcile-interval-seconds: '1s' is not usable"),
    ],
)
def test_what_is_not_usable_is_named_with_what_is_allowed(key: str, text: str, said: str) -> None:
    with pytest.raises(InvalidConfigurationError) as raised:
        read({key: text})
    assert said in str(raised.value)
