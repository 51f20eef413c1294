"""What other packages add to koordlet: found by entry points, switched by name, and off when it fails.

A package that adds something declares it in its pyproject.toml:

    [project.entry-points."koordinator.koordlet.strategies"]
    "example.com/tight-memory" = "tight_memory:strategy"

    [project.entry-points."koordinator.koordlet.hooks"]
    "example.com/idle-pods" = "idle_pods:hook"

    [project.entry-points."koordinator.koordlet.controllers"]
    "example.com/cool-machine" = "cool_machine:controller"

    [project.entry-points."koordinator.koordlet.sinks"]
    "example.com/line-files" = "line_files:sink"

    [project.entry-points."koordinator.koordlet.backends"]
    "example.com/csv-files" = "csv_files:open_files"

Installing the package beside koordlet enables them; a backend is the one that ``--metric-cache-backend`` names. Each of
the others is called without arguments at the start, and gives a ``Strategy``, a ``Hook``, a ``Controller`` or a
``Sink``; one that cannot be used fails the start, with one line that names its distribution. What a strategy, a hook or
a controller returns later is treated as that of the built-in ones: the executor merges it with theirs, and a file
without a value of anybody's stays as it is.

A function of a package may raise anything, and may take as long as it likes. Both happen on a thread of its own, and
only once, but for a controller, which is called again: then the strategy, hook, sink or backend is named in the log and
in a metric, and is off until koordlet starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.base.installed import ListEntryPoints, OfferedClasses, listing, make_all, origin, refuse
from koordinator.base.side_thread import SideThread, UnfinishedCallError
from koordinator.base.spelling import did_you_mean
from koordinator.koordlet.enforce.controller import LONGEST_INTERVAL as LONGEST_CONTROLLER_INTERVAL
from koordinator.koordlet.enforce.controller import Controller
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.hooks.contexts import Change, HookError
from koordinator.koordlet.enforce.hooks.registry import Hook
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Snapshot, Strategy
from koordinator.koordlet.observe.metric_cache.backends import FLAG as BACKEND_FLAG
from koordinator.koordlet.observe.metric_cache.backends import (
    MEMORY,
    SQLITE,
    Backend,
    MetricCacheError,
    OpenBackend,
    open_sqlite,
)
from koordinator.koordlet.observe.metric_cache.kinds import Round, Series
from koordinator.koordlet.observe.metric_cache.ring import Retention
from koordinator.koordlet.observe.metric_cache.sinks import LONGEST_INTERVAL, Sink

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

logger = logging.getLogger(__name__)

STRATEGIES: Final = "koordinator.koordlet.strategies"
HOOKS: Final = "koordinator.koordlet.hooks"
CONTROLLERS: Final = "koordinator.koordlet.controllers"
SINKS: Final = "koordinator.koordlet.sinks"
BACKENDS: Final = "koordinator.koordlet.backends"
SWITCH_FLAG: Final = "qos-extension-plugins"
SECONDS: Final = 1.0
"""For so long koordlet waits for one call."""
_OPENING_SECONDS: Final = 30.0
"""For so long the start waits for a backend to open."""
_BATCH: Final = 100
"""Rounds that are read from a backend at once."""
_STRATEGY: Final = (
    "expected is a function without arguments that returns a koordinator.koordlet.enforce.strategies.snapshot.Strategy"
)
_HOOK: Final = (
    "expected is a function without arguments that returns a koordinator.koordlet.enforce.hooks.registry.Hook"
)
_CONTROLLER: Final = (
    "expected is a function without arguments that returns a koordinator.koordlet.enforce.controller.Controller"
)
_BACKEND: Final = (
    "expected is a function of a folder and of retentions that returns a"
    " koordinator.koordlet.observe.metric_cache.backends.Backend"
)
_SINK: Final = (
    "expected is a function without arguments that returns a koordinator.koordlet.observe.metric_cache.sinks.Sink"
)
_OF_SETTINGS: Final = ("node", "of_pod", "of_pods")
_FUNCTIONS: Final = ("pod", "container", "qos_folder", "host_application", "task_group", *_OF_SETTINGS)

T = TypeVar("T")


class Guard:
    """Calls the functions of one plugin: a strategy, hook, sink or backend. Those of a controller are called by its
    loop, on the thread of the guard."""

    def __init__(self, name: str, package: str, seconds: float = SECONDS, *, can_be_switched: bool = True) -> None:
        self.name = name
        self.package = package
        self.can_be_switched = can_be_switched
        """Whether the options switch it: a backend is chosen, once."""
        self.problem = ""
        """How it has failed; empty while it works."""
        self.is_on = True
        """Whether the options switch it on."""
        self.thread = SideThread(f"plugin {name}")
        self._seconds = seconds

    def call(self, function: Callable[..., T], *arguments: Any) -> T | None:
        """What it returns; None when it is off, or is switched off by this call. HookError is the pod's fault."""
        if self.problem or not self.is_on:
            return None
        try:
            return self.thread.call(lambda: function(*arguments), self._seconds)
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


class GuardedController(NamedTuple):
    controller: Controller
    guard: Guard


@dataclass(frozen=True, slots=True)
class Plugins:
    """Of all packages that are installed, each behind a guard."""

    strategies: Sequence[Strategy] = ()
    hooks: Sequence[Hook] = ()
    controllers: Sequence[GuardedController] = ()
    sinks: Sequence[Sink] = ()
    open_backend: OpenBackend = open_sqlite
    """Of the metric cache, where it has one."""
    guards: Sequence[Guard] = ()

    def switch(self, switches: Mapping[str, bool]) -> None:
        """Those that are named are on or off from now on, all others are on. A name of none, or of a backend, is said
        in the log: what a ConfigMap names is not installed on every node."""
        known = {guard.name: guard for guard in self.guards}
        for name in switches.keys() - known.keys():
            hint = did_you_mean(name, known)
            logger.warning("--%s=%s: no package that is installed has one of that name%s", SWITCH_FLAG, name, hint)
        for name, guard in known.items():
            if guard.can_be_switched:
                guard.is_on = switches.get(name, True)
            elif name in switches:
                what = "--%s=%s=%s: a backend is chosen by --%s alone"
                logger.warning(what, SWITCH_FLAG, name, switches[name], BACKEND_FLAG)


def installed_plugins(entry_points: Callable[[str], ListEntryPoints] = listing, backend: str = MEMORY) -> Plugins:
    """Those of the entry points of each group, and the backend of that name. ConfigurationError for one that cannot be
    used."""
    guards: dict[str, Guard] = {}

    def guard(name: str, package: str, *, can_be_switched: bool = True) -> Guard:
        if name in guards:
            where, what = f"entry points of {package}", f"is also a name of {guards[name].package}"
            raise ConfigurationError(where, name, f"{what}; expected is a name of its own for each of them")
        return guards.setdefault(name, Guard(name, package, can_be_switched=can_be_switched))

    found_strategies = make_all(STRATEGIES, _check_strategy, _STRATEGY, entry_points(STRATEGIES))
    found_hooks = make_all(HOOKS, _check_hook, _HOOK, entry_points(HOOKS))
    found_controllers = make_all(CONTROLLERS, _check_controller, _CONTROLLER, entry_points(CONTROLLERS))
    found_sinks = make_all(SINKS, _check_sink, _SINK, entry_points(SINKS))
    open_backend: OpenBackend = open_sqlite
    if backend not in (MEMORY, SQLITE):
        open_backend = _installed_backend(backend, entry_points(BACKENDS), partial(guard, can_be_switched=False))
    return Plugins(
        tuple(_guarded_strategy(each, guard(name, package)) for name, (each, package) in found_strategies.items()),
        tuple(_guarded_hook(each, guard(name, package)) for name, (each, package) in found_hooks.items()),
        tuple(GuardedController(each, guard(name, package)) for name, (each, package) in found_controllers.items()),
        tuple(_guarded_sink(each, guard(name, package)) for name, (each, package) in found_sinks.items()),
        open_backend,
        tuple(guards.values()),
    )


def _installed_backend(
    name: str, list_entry_points: ListEntryPoints, guard: Callable[[str, str], Guard]
) -> OpenBackend:
    """Of the packages with backends, that of the one that is used is imported alone."""
    offered = OfferedClasses(BACKENDS, list_entry_points, _BACKEND)
    if name not in offered.by_name:
        known = ", ".join((MEMORY, SQLITE, *sorted(offered.by_name)))
        raise ConfigurationError(f"--{BACKEND_FLAG}", name, f"no package that is installed has it; there are {known}")
    entry, open_backend = offered.load(name, f"entry point {BACKENDS}")
    if not callable(open_backend):
        refuse(entry, f"entry point {BACKENDS}", f"is {open_backend!r}", _BACKEND)
    _check_name(entry, BACKENDS, name)
    return partial(_open_guarded, open_backend, guard(name, origin(entry)))


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


def _check_controller(entry: EntryPoint, made: object) -> Controller:
    where = f"entry point {CONTROLLERS}"
    if not isinstance(made, Controller):
        refuse(entry, where, f"gives {made!r}", _CONTROLLER)
    _check_name(entry, CONTROLLERS, made.name)
    for what, seconds in (("interval", made.interval), ("deadline", made.deadline)):
        if not 0 < seconds <= LONGEST_CONTROLLER_INTERVAL:
            expected = f"expected are seconds above 0, {LONGEST_CONTROLLER_INTERVAL:g} at most"
            refuse(entry, where, f"has {what} = {seconds!r}", expected)
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
        return checked_decision(strategy.name, strategy.decide(snapshot))

    def guarded(snapshot: Snapshot) -> Decision:
        # What is off desires nothing any more, rather than the same for ever.
        return guard.call(decide, snapshot) or Decision((), guard.problem or f"switched off by --{SWITCH_FLAG}")

    return replace(strategy, decide=guarded)


def checked_decision(owner: str, decision: object) -> Decision:
    """TypeError or ValueError for what is no decision of that owner's."""
    if not isinstance(decision, Decision):
        raise TypeError(f"{decision!r} is no Decision")
    _check_settings(owner, decision.settings or ())
    return decision


def _open_guarded(
    open_backend: OpenBackend, guard: Guard, folder: Path, retentions: Mapping[str, Retention]
) -> Backend:
    """The backend of another package. MetricCacheError if it cannot be opened; it is off if anything fails later."""
    try:
        backend = guard.thread.call(lambda: open_backend(folder, retentions), _OPENING_SECONDS)
    except KoordinatorError as error:
        raise MetricCacheError(f"{guard.name} of {guard.package}: {error}") from error
    except Exception as error:
        raise MetricCacheError(f"{guard.name} of {guard.package} raised {type(error).__name__}: {error}") from error
    return _GuardedBackend(backend, guard)


class _GuardedBackend:
    def __init__(self, backend: Backend, guard: Guard) -> None:
        self._backend = backend
        self._guard = guard

    def read(self) -> Iterator[Round]:
        """A batch at a time: samples of half an hour take more memory than a node has to spare."""
        rounds = self._guard.call(lambda: iter(self._backend.read()))
        while rounds is not None and (batch := self._guard.call(lambda: [*map(_check_round, islice(rounds, _BATCH))])):
            yield from batch

    def write(self, rounds: Sequence[Round]) -> None:
        self._guard.call(self._backend.write, rounds)

    def close(self) -> None:
        self._guard.call(self._backend.close)


def _check_round(made: object) -> Round:
    if not isinstance(made, Round) or not isinstance(made.at, int):
        raise TypeError(f"{made!r} is no Round")
    kinds = {series.kind for series in made.samples if isinstance(series, Series)}
    if len({kind.group for kind in kinds}) > 1 or not all(isinstance(series, Series) for series in made.samples):
        raise ValueError(f"{made!r} is no Round of one group")
    return made


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
