"""What other packages add to koordlet, when it cannot be loaded, raises or never returns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.koordlet.enforce.controller import Controller
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
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
from tests.koordlet.enforce.extended_node import NAME, entry, loaded, only, play
from tests.koordlet.enforce.hooks.hook_fixtures import running
from tests.koordlet.enforce.hooks.hooked_node import HookedNode
from tests.koordlet.suppressed_node import SuppressedNode


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


def test_a_backend_is_chosen_at_the_start_and_not_switched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plugins = opened(tmp_path, "open_unreadable")
    plugins.switch({NAME: False})
    assert plugins.guards[0].is_on
    assert f"--qos-extension-plugins={NAME}=False: a backend is chosen by --metric-cache-backend alone" in caplog.text


def test_what_is_switched_off_by_its_name_desires_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wanted = Decision((DesiredSetting(NAME, Target(CPU_SHARES, "kubepods"), 2, "ours"),), "ours")
    plugins = loaded(tmp_path, STRATEGIES, Strategy(NAME, 1.0, lambda _: wanted))
    (strategy,) = plugins.strategies
    plugins.switch({NAME: False, "example.com/our": True})
    assert strategy.decide(Snapshot()) == Decision((), "switched off by --qos-extension-plugins")
    assert (
        "--qos-extension-plugins=example.com/our: no package that is installed has one of that name; did" in caplog.text
    )
    plugins.switch({})
    assert strategy.decide(Snapshot()) == wanted
