"""The examples of docs/koordlet.md of what packages add to koordlet, installed as users do it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from koordinator.api.kinds import EVENTS
from koordinator.koordlet.agent import Agent
from koordinator.koordlet.enforce.hooks.contexts import HookError
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.enforce.plugins import (
    Plugins,
    installed_plugins,
)
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.backends import MEMORY
from koordinator.koordlet.observe.metric_cache.kinds import Round
from tests.koordlet.enforce.extended_node import pass_seconds, play, run
from tests.koordlet.enforce.hooks.hook_fixtures import running
from tests.koordlet.node_under_test import GIB
from tests.koordlet.suppressed_node import JOB, JOB_FOLDERS, SuppressedNode

EXAMPLES = Path(__file__).parents[3] / "docs/examples"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the examples are installed, without a network, and imported from."""
    target = tmp_path_factory.mktemp("packages")
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check", "--quiet")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            *offline,
            "--target",
            target,
            *(EXAMPLES / f"koordlet-{name}" for name in ("plugin", "sink", "controller", "backend")),
        ],
        check=True,
    )
    sys.path.insert(0, str(target))
    yield target
    sys.path.remove(str(target))
    for name in ("careful_batch", "line_files", "cool_machine", "csv_files"):
        sys.modules.pop(name, None)


@pytest.fixture
def example(packages: Path) -> Plugins:
    return examples(packages)


def examples(packages: Path, backend: str = MEMORY) -> Plugins:
    installed = [Distribution.at(info).entry_points for info in packages.glob("*.dist-info")]
    return installed_plugins(
        lambda group: lambda: [entry for each in installed for entry in each.select(group=group)], backend
    )


def test_the_example_acts_on_the_files_of_pods(example: Plugins, tmp_path: Path) -> None:
    node = SuppressedNode(tmp_path)
    node.plugins = example
    node.pods[1]["metadata"]["annotations"] = {"example.com/cpu-idle": "true"}
    for folder in JOB_FOLDERS:
        node.machine.write(f"/sys/fs/cgroup/{folder}/memory.high", "max\n")
        node.machine.write(f"/sys/fs/cgroup/{folder}/cpu.idle", "0\n")
    node.closed_gates = ("BECPUSuppress",)
    text = play(node, 15)
    pod = tmp_path / "sys/fs/cgroup" / JOB_FOLDERS[1]
    assert (pod / "cpu.idle").read_text().strip() == "1"
    # Half of the memory of the node is in use.
    assert (pod / "memory.high").read_text().strip() == "max"
    assert text.count("koordlet_plugin_working{") == 4
    assert 'package="careful-batch 0.1.0"' in text


def test_the_example_of_a_sink_has_every_sample_of_the_node(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "samples.line"
    monkeypatch.setenv("KOORDLET_SAMPLE_FILE", str(file))
    node = SuppressedNode(tmp_path / "machine")
    node.plugins = examples(packages)
    play(node, 14)
    lines = file.read_text().splitlines()
    # In the order of time, up to the end: not only what the last interval has written.
    of_node = [line for line in lines if line.startswith("node_memory_usage,node=node-1 ")]
    seconds = [int(line.split()[-1]) // 10**9 for line in of_node]
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds)))
    assert len(seconds) >= 12
    assert f"node_memory_usage,node=node-1 value={8 * GIB} 1767225602100000000" in of_node
    assert any(line.startswith(f"pod_memory_usage,node=node-1,pod_uid={JOB} value=") for line in lines)


def test_a_sink_that_cannot_write_loses_samples_and_goes_on(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KOORDLET_SAMPLE_FILE", str(tmp_path / "file" / "samples.line"))
    (sink,) = examples(packages).sinks
    for _ in range(2):
        sink.write("n", [Round(1, {kinds.NODE_CPU_USAGE.series(): 1.0})])
    assert caplog.text.count("samples are lost") == 1


def test_the_example_of_a_backend_keeps_samples_over_a_restart(packages: Path, tmp_path: Path) -> None:
    node = SuppressedNode(tmp_path / "machine")
    node.samples = tmp_path / "samples"
    node.plugins = examples(packages, "example.com/csv-files")
    play(node, 10)
    node.kubelet_is_up = True
    assert 'package="csv-files 0.1.0",plugin="example.com/csv-files"} 1.0' in play(node, 3)
    seconds = [int(line.split(",")[0]) // 1000 for line in (node.samples / "node.csv").read_text().splitlines()]
    assert max(seconds) - min(seconds) >= 10


def test_the_example_of_a_controller_holds_best_effort_pods_down_while_the_machine_is_hot(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thermal = tmp_path / "temp"
    thermal.write_text("40000\n")
    monkeypatch.setenv("KOORDLET_THERMAL_FILE", str(thermal))
    node = SuppressedNode(tmp_path / "machine")
    node.plugins = examples(packages)
    quotas: list[int] = []

    async def story(_: Agent) -> None:
        for degrees in (40, 90, 80, 70):
            thermal.write_text(f"{degrees}000\n")
            await pass_seconds(node, 12)
            quotas.append(node.quota)

    run(node, story)
    cool, hot, less_hot, cool_again = quotas
    assert max(abs(quota - node.wanted) for quota in (cool, cool_again)) < 5000
    # A quarter of the 2.6 cores of the node that were in use, or a little more: it began with four.
    assert 65_000 <= hot == less_hot <= 80_000
    (event,) = [each for each in node.api.all(EVENTS) if each["reason"] == "MachineHot"]
    assert event["reportingComponent"] == "example.com/cool-machine"


def test_a_bad_annotation_is_the_pods_fault_and_not_the_plugins(example: Plugins) -> None:
    (hook,) = example.hooks
    assert hook.pod is not None
    with pytest.raises(HookError, match="'maybe' is not usable"):
        hook.pod(running(annotations={"example.com/cpu-idle": "maybe"}), Rules())
    assert not any(guard.problem for guard in example.guards)
