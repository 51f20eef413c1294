"""What other packages add to koordlet: the examples of docs/koordlet.md, installed as users do it, and others that fail
when they are loaded or called, or never return."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import EVENTS
from koordinator.base.errors import ConfigurationError
from koordinator.base.installed import ListEntryPoints
from koordinator.koordlet.agent import Agent
from koordinator.koordlet.enforce.controller import Controller
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.hooks.contexts import HookError
from koordinator.koordlet.enforce.hooks.registry import Hook
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.enforce.plugins import (
    BACKENDS,
    CONTROLLERS,
    HOOKS,
    SINKS,
    STRATEGIES,
    Guard,
    Plugins,
    installed_plugins,
)
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Snapshot, Strategy
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.backends import MEMORY, MetricCacheError
from koordinator.koordlet.observe.metric_cache.kinds import Round
from koordinator.koordlet.observe.metric_cache.sinks import Sink
from koordinator.node.kernel_files import CPU_SHARES, Target
from tests.koordlet.enforce.hooks.hook_fixtures import running
from tests.koordlet.enforce.hooks.hooked_node import HookedNode
from tests.koordlet.node_under_test import GIB
from tests.koordlet.suppressed_node import JOB, JOB_FOLDERS, SuppressedNode

EXAMPLES = Path(__file__).parents[3] / "docs/examples"
NAME = "example.com/ours"


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


def play(node: SuppressedNode, seconds: int) -> str:
    """The metrics at the end."""

    async def story(_: Agent) -> None:
        await pass_seconds(node, seconds)

    return run(node, story)


def run(node: SuppressedNode, story: Callable[[Agent], Awaitable[None]]) -> str:
    """The metrics at the end."""

    async def play() -> str:
        async with node.running() as agent:
            await story(agent)
            return agent.metrics.both.exposition()[0].decode()

    return asyncio.run(play())


async def pass_seconds(node: SuppressedNode, seconds: int) -> None:
    """As the node's own, and what controllers do on their threads takes no time."""
    for _ in range(seconds):
        await node.pass_seconds(1)
        while any(guard.thread.is_busy for _, guard in node.plugins.controllers):
            await asyncio.sleep(0)
        await node.clock.advance(0)


def is_suppressed(node: SuppressedNode) -> bool:
    """Whether best-effort pods have what CPU suppress gives them, which moves with what others use."""
    return abs(node.quota - node.wanted) < 5000


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


def entry(folder: Path, group: str, value: str, name: str = NAME) -> EntryPoint:
    info = folder / "ours-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Name: ours\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
    (found,) = Distribution.at(info).entry_points
    return found


def hook_of_another_name() -> Hook:
    return Hook("example.com/another", pod=lambda *_: None)


def hook_without_functions() -> Hook:
    return Hook(NAME)


def hook_in_order() -> Hook:
    return Hook(NAME, pod=lambda *_: None)


def strategy_that_never_runs() -> Strategy:
    return Strategy(NAME, 0.0, lambda _: Decision((), ""))


def strategy_in_order() -> Strategy:
    return Strategy(NAME, 1.0, lambda _: Decision((), ""))


def nothing() -> None: ...


def controller_without_a_deadline() -> Controller:
    return Controller(NAME, 1.0, raises, deadline=0.0)


def sink_that_waits_too_long() -> Sink:
    return Sink(NAME, 301.0, raises)


@pytest.mark.parametrize(
    ("group", "value", "problem"),
    [
        (HOOKS, "no_such_module:hook", "cannot be made (ModuleNotFoundError: No module named 'no_such_module')"),
        (HOOKS, f"{__name__}:nothing", "gives None"),
        (HOOKS, f"{__name__}:hook_of_another_name", "has name = 'example.com/another'"),
        (HOOKS, f"{__name__}:hook_without_functions", "has no function"),
        (STRATEGIES, f"{__name__}:nothing", "gives None"),
        (STRATEGIES, f"{__name__}:strategy_that_never_runs", "has interval = 0.0"),
        (CONTROLLERS, f"{__name__}:nothing", "gives None"),
        (CONTROLLERS, f"{__name__}:controller_without_a_deadline", "has deadline = 0.0"),
        (BACKENDS, "no_such_module:open", "cannot be imported (ModuleNotFoundError: No module named 'no_such_module')"),
        (BACKENDS, f"{__name__}:NAME", "is 'example.com/ours'"),
        (SINKS, f"{__name__}:nothing", "gives None"),
        (SINKS, f"{__name__}:sink_that_waits_too_long", "has interval = 301.0"),
    ],
)
def test_one_that_cannot_be_used_is_named_at_the_start(tmp_path: Path, group: str, value: str, problem: str) -> None:
    found = [entry(tmp_path, group, value)]
    with pytest.raises(ConfigurationError) as raised:
        installed_plugins(only(group, found), NAME if group == BACKENDS else MEMORY)
    expected = f"entry point {group}: '{NAME}' is not usable: entry point {NAME} = {value} of ours 1.0 {problem}"
    assert str(raised.value).startswith(expected)


def test_a_name_that_a_built_in_may_have_is_refused(tmp_path: Path) -> None:
    found = entry(tmp_path, HOOKS, f"{__name__}:hook_named_as_a_built_in", "GroupIdentity")
    with pytest.raises(ConfigurationError, match="expected is one with a domain of yours, as"):
        installed_plugins(only(HOOKS, [found]))


def hook_named_as_a_built_in() -> Hook:
    return Hook("GroupIdentity", pod=lambda *_: None)


def test_a_strategy_and_a_hook_of_one_name_would_undo_each_other(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    found = {
        STRATEGIES: [entry(tmp_path, STRATEGIES, f"{__name__}:strategy_in_order")],
        HOOKS: [entry(tmp_path / "other", HOOKS, f"{__name__}:hook_in_order")],
    }
    with pytest.raises(ConfigurationError, match=r"is also a name of ours 1\.0"):
        installed_plugins(lambda group: lambda: found.get(group, []))


def raises(*_: Any) -> Any:
    raise OSError("no such device")


def times_out(*_: Any) -> Any:
    raise TimeoutError("no response")


def of_someone_else(*_: Any) -> list[DesiredSetting]:
    return [DesiredSetting("GroupIdentity", Target(CPU_SHARES, "kubepods"), 2, "ours")]


@pytest.mark.parametrize(
    ("functions", "problem"),
    [
        ({"pod": raises}, "raised OSError: no such device"),
        ({"pod": times_out}, "raised TimeoutError: no response"),
        ({"pod": lambda *_: "idle"}, "raised TypeError: pod gives 'idle', which is no Change"),
        ({"of_pods": of_someone_else}, "raised ValueError: DesiredSetting("),
        ({"of_pods": lambda *_: 7}, "raised TypeError: "),
    ],
)
def test_a_hook_that_fails_is_named_once_and_switched_off(
    tmp_path: Path, functions: dict[str, Any], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    plugins = loaded(tmp_path, HOOKS, Hook(NAME, **functions))
    (hook,), (guard,) = plugins.hooks, plugins.guards
    for _ in range(3):
        assert not hook.pod or hook.pod(running(), Rules()) is None
        assert not hook.of_pods or hook.of_pods([], Rules()) == []
    assert guard.problem.startswith(problem)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{NAME} of ours 1.0 {problem}")


@pytest.mark.parametrize("decide", [raises, lambda _: None, lambda _: Decision(tuple(of_someone_else()), "")])
def test_a_strategy_that_fails_desires_nothing_any_more(tmp_path: Path, decide: Callable[[Snapshot], Decision]) -> None:
    plugins = loaded(tmp_path, STRATEGIES, Strategy(NAME, 1.0, decide))
    (strategy,), (guard,) = plugins.strategies, plugins.guards
    assert strategy.decide(Snapshot()) == Decision((), guard.problem)
    assert guard.problem.startswith("raised ")


def test_one_that_never_returns_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    end = threading.Event()
    guard = Guard(NAME, "ours 1.0", seconds=0.01)
    try:
        assert guard.call(end.wait) is None
        assert guard.call(lambda: 7) is None
    finally:
        end.set()
    assert guard.problem == "took longer than 0.01 s"
    assert len(caplog.records) == 1


def test_the_other_hooks_go_on(tmp_path: Path) -> None:
    plugins = loaded(tmp_path, HOOKS, Hook(NAME, pod=raises))

    class Extended(HookedNode):
        installed = plugins.hooks

    node = Extended(tmp_path / "node")
    pod = node.run_pod("web", "LS")
    node.run_hooks()
    assert node.of_pod(pod, "cpu.bvt_warp_ns") == ["1", "1", "1"]


made: list[Any] = []


def take() -> Any:
    """What the test has put there."""
    return made.pop()


def loaded(folder: Path, group: str, plugin: Any) -> Plugins:
    made.append(plugin)
    found = [entry(folder, group, f"{__name__}:take")]
    return installed_plugins(only(group, found))


def test_a_sink_that_fails_is_off_and_everything_else_goes_on(tmp_path: Path) -> None:
    node = SuppressedNode(tmp_path / "machine")
    node.plugins = loaded(tmp_path, SINKS, Sink(NAME, 2.0, raises))
    text = play(node, 10)
    assert f'koordlet_plugin_working{{node="node-1",package="ours 1.0",plugin="{NAME}"}} 0.0' in text
    assert node.quota == node.wanted


def test_a_backend_that_is_not_installed_is_named_with_those_that_are(tmp_path: Path) -> None:
    found = [entry(tmp_path, BACKENDS, f"{__name__}:open_none")]
    with pytest.raises(ConfigurationError) as raised:
        installed_plugins(only(BACKENDS, found), "sqlit")
    assert str(raised.value) == (
        "--metric-cache-backend: 'sqlit' is not usable: no package that is installed has it;"
        f" there are memory, sqlite, {NAME}"
    )


def open_none(*_: Any) -> Any:
    raise OSError("no space left")


class Unreadable:
    def read(self) -> Any:
        yield Round(1000, {kinds.NODE_CPU_USAGE.series(): 1.0})
        yield "what is this?"

    def write(self, rounds: Any) -> None:
        raise AssertionError("it is off")

    close = write


def open_unreadable(*_: Any) -> Unreadable:
    return Unreadable()


def opened(folder: Path, value: str) -> Plugins:
    found = [entry(folder, BACKENDS, f"{__name__}:{value}")]
    return installed_plugins(only(BACKENDS, found), NAME)


def test_a_backend_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(MetricCacheError, match=r"example.com/ours of ours 1\.0 raised OSError: no space left"):
        opened(tmp_path, "open_none").open_backend(tmp_path, {})


def test_a_backend_that_fails_is_off_and_samples_stay_in_memory(tmp_path: Path) -> None:
    node = SuppressedNode(tmp_path / "machine")
    node.samples = tmp_path
    node.plugins = opened(tmp_path, "open_unreadable")
    text = play(node, 10)
    assert f'koordlet_plugin_working{{node="node-1",package="ours 1.0",plugin="{NAME}"}} 0.0' in text
    assert "raised TypeError: 'what is this?' is no Round" in node.plugins.guards[0].problem
    assert node.quota == node.wanted


def only(group: str, found: list[EntryPoint]) -> Callable[[str], ListEntryPoints]:
    return lambda asked: lambda: found if asked == group else []
