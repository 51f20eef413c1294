"""Strategies, hooks and sinks of other packages: found by their entry points, and switched off when they fail.

A package that adds one to koordlet declares it in its pyproject.toml:

    [project.entry-points."koordinator.koordlet.strategies"]
    "example.com/tight-memory" = "tight_memory:strategy"

    [project.entry-points."koordinator.koordlet.hooks"]
    "example.com/idle-pods" = "idle_pods:hook"

    [project.entry-points."koordinator.koordlet.sinks"]
    "example.com/line-files" = "line_files:sink"

Installing the package beside koordlet enables them. Each is called without arguments at the start, and gives a
``Strategy``, a ``Hook`` or a ``Sink``; one that cannot be used fails the start, with one line that names its
distribution. What a strategy or a hook returns later is treated as that of the built-in ones: the executor merges it
with theirs, and a file without a value of anybody's stays as it is.

A function of a package may raise anything, and may take as long as it likes. Both happen on a thread of its own, and
only once: then the strategy, hook or sink is named in the log and in a metric, and is off until koordlet starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from koordinator.base.errors import ConfigurationError
from koordinator.base.installed import ListEntryPoints, listing, make_all, refuse
from koordinator.base.side_thread import SideThread, UnfinishedCallError
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.hooks.contexts import Change, HookError
from koordinator.koordlet.enforce.hooks.registry import Hook
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Snapshot, Strategy
from koordinator.koordlet.observe.metric_cache.sinks import LONGEST_INTERVAL, Sink

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

logger = logging.getLogger(__name__)

STRATEGIES: Final = "koordinator.koordlet.strategies"
HOOKS: Final = "koordinator.koordlet.hooks"
SINKS: Final = "koordinator.koordlet.sinks"
SECONDS: Final = 1.0
"""For so long koordlet waits for one call."""
_STRATEGY: Final = (
    "expected is a function without arguments that returns a koordinator.koordlet.enforce.strategies.snapshot.Strategy"
)
_HOOK: Final = (
    "expected is a function without arguments that returns a koordinator.koordlet.enforce.hooks.registry.Hook"
)
_SINK: Final = (
    "expected is a function without arguments that returns a koordinator.koordlet.observe.metric_cache.sinks.Sink"
)
_OF_SETTINGS: Final = ("node", "of_pod", "of_pods")
_FUNCTIONS: Final = ("pod", "container", "qos_folder", "host_application", "task_group", *_OF_SETTINGS)

T = TypeVar("T")


class Guard:
    """Calls the functions of one strategy, hook or sink."""

    def __init__(self, name: str, package: str, seconds: float = SECONDS) -> None:
        self.name = name
        self.package = package
        self.problem = ""
        """Why it is off; empty while it is not."""
        self._seconds = seconds
        self._thread = SideThread(f"plugin {name}")

    def call(self, function: Callable[..., T], *arguments: Any) -> T | None:
        """What it returns; None when it is off, or is switched off by this call. HookError is the pod's fault."""
        if self.problem:
            return None
        try:
            return self._thread.call(lambda: function(*arguments), self._seconds)
        except HookError:
            raise
        except UnfinishedCallError:
            self._switch_off(f"took longer than {self._seconds:g} s", None)
        except Exception as error:
            self._switch_off(f"raised {type(error).__name__}: {error}", error)
        return None

    def _switch_off(self, what: str, error: Exception | None) -> None:
        self.problem = what
        logger.error(
            "%s of %s %s: it is switched off until koordlet starts again", self.name, self.package, what, exc_info=error
        )


@dataclass(frozen=True, slots=True)
class Plugins:
    """Of all packages that are installed, each behind a guard."""

    strategies: Sequence[Strategy] = ()
    hooks: Sequence[Hook] = ()
    sinks: Sequence[Sink] = ()
    guards: Sequence[Guard] = ()


def installed_plugins(entry_points: Callable[[str], ListEntryPoints] = listing) -> Plugins:
    """Those of the entry points of each group. ConfigurationError for one that cannot be used."""
    guards: dict[str, Guard] = {}

    def guard(name: str, package: str) -> Guard:
        if name in guards:
            where, what = f"entry points of {package}", f"is also a name of {guards[name].package}"
            raise ConfigurationError(
                where, name, f"{what}; expected is a name of its own for each strategy, hook and sink"
            )
        return guards.setdefault(name, Guard(name, package))

    found_strategies = make_all(STRATEGIES, _check_strategy, _STRATEGY, entry_points(STRATEGIES))
    found_hooks = make_all(HOOKS, _check_hook, _HOOK, entry_points(HOOKS))
    found_sinks = make_all(SINKS, _check_sink, _SINK, entry_points(SINKS))
    return Plugins(
        tuple(_guarded_strategy(each, guard(name, package)) for name, (each, package) in found_strategies.items()),
        tuple(_guarded_hook(each, guard(name, package)) for name, (each, package) in found_hooks.items()),
        tuple(_guarded_sink(each, guard(name, package)) for name, (each, package) in found_sinks.items()),
        tuple(guards.values()),
    )


def _check_strategy(entry: EntryPoint, made: object) -> Strategy:
    if not isinstance(made, Strategy):
        refuse(entry, f"entry point {STRATEGIES}", f"gives {made!r}", _STRATEGY)
    _check_name(entry, STRATEGIES, made.name)
    if not made.interval > 0:
        refuse(entry, f"entry point {STRATEGIES}", f"has interval = {made.interval!r}", "expected are seconds above 0")
    return made


def _check_hook(entry: EntryPoint, made: object) -> Hook:
    if not isinstance(made, Hook):
        refuse(entry, f"entry point {HOOKS}", f"gives {made!r}", _HOOK)
    _check_name(entry, HOOKS, made.name)
    if not any(getattr(made, name) for name in _FUNCTIONS):
        refuse(entry, f"entry point {HOOKS}", "has no function", f"expected is one of {', '.join(_FUNCTIONS)}")
    return made


def _check_sink(entry: EntryPoint, made: object) -> Sink:
    if not isinstance(made, Sink):
        refuse(entry, f"entry point {SINKS}", f"gives {made!r}", _SINK)
    _check_name(entry, SINKS, made.name)
    if not 0 < made.interval <= LONGEST_INTERVAL:
        expected = f"expected are seconds above 0, {LONGEST_INTERVAL:g} at most"
        refuse(entry, f"entry point {SINKS}", f"has interval = {made.interval!r}", expected)
    return made


def _check_name(entry: EntryPoint, group: str, name: str) -> None:
    if name != entry.name:
        refuse(entry, f"entry point {group}", f"has name = {name!r}", f"expected is name = {entry.name!r}")
    if "/" not in name:
        expected = f"expected is one with a domain of yours, as example.com/{name}"
        refuse(entry, f"entry point {group}", "has a name as those that are built in", expected)


def _guarded_strategy(strategy: Strategy, guard: Guard) -> Strategy:
    def decide(snapshot: Snapshot) -> Decision:
        decision = strategy.decide(snapshot)
        if not isinstance(decision, Decision):
            raise TypeError(f"{decision!r} is no Decision")
        _check_settings(strategy.name, decision.settings or ())
        return decision

    # What is off settings nothing any more, rather than the same for ever.
    return replace(strategy, decide=lambda snapshot: guard.call(decide, snapshot) or Decision((), guard.problem))


def _guarded_sink(sink: Sink, guard: Guard) -> Sink:
    return replace(sink, write=lambda node, rounds: guard.call(sink.write, node, rounds))


def _guarded_hook(hook: Hook, guard: Guard) -> Hook:
    def guarded(name: str) -> Callable[..., Any] | None:
        function = getattr(hook, name)
        if function is None:
            return None
        if name in _OF_SETTINGS:
            return lambda *arguments: guard.call(lambda: _check_settings(hook.name, function(*arguments))) or []
        return lambda *arguments: guard.call(lambda: _check_result(name, function(*arguments)))

    functions: dict[str, Any] = {name: guarded(name) for name in _FUNCTIONS}
    return replace(hook, **functions)


def _check_settings(owner: str, settings: Sequence[DesiredSetting]) -> list[DesiredSetting]:
    for setting in settings:
        if not isinstance(setting, DesiredSetting) or setting.owner != owner:
            raise ValueError(f"{setting!r} is no DesiredSetting of the owner {owner}")
    return list(settings)


def _check_result(name: str, result: object) -> object:
    expected = str if name == "task_group" else Change
    if result is not None and not isinstance(result, expected):
        raise TypeError(f"{name} gives {result!r}, which is no {expected.__name__}")
    return result
