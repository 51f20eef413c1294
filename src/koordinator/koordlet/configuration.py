"""The ConfigMap of koordlet: flags that take effect while it runs.

Each key is the name of a flag, and counts as if it stood at the end of the command line: so the names, the values and
what is allowed are those of the flags. Only flags that can change without a restart are taken. A ConfigMap with any
mistake is refused as a whole: its author gets an event, and the last good one stays in force.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from koordinator.api.core import ConfigMap
from koordinator.api.kinds import CONFIG_MAPS
from koordinator.api.timestamps import format_time
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.base.spelling import did_you_mean
from koordinator.koordlet import features
from koordinator.koordlet.agent_metrics import AgentMetrics, Rows
from koordinator.koordlet.options import Options, ReadOptions, WatchedConfiguration
from koordinator.kube.event_series import limit_note, reference_to
from koordinator.kube.events import EventRecorder
from koordinator.kube.informer_set import InformerSet

logger = logging.getLogger(__name__)

COMPONENT: Final = "koordlet"
"""Of the events."""
REASON: Final = "InvalidConfiguration"
LIVE_GATES: Final = frozenset(
    {
        *(features.BE_CPU_SUPPRESS, features.BE_CPU_MANAGER, features.CPU_BURST, features.RDT_RESCTRL),
        *(features.BE_CPU_EVICT, features.CPU_EVICT, features.CPU_ALLOCATABLE_EVICT),
        *(features.BE_MEMORY_EVICT, features.MEMORY_EVICT, features.MEMORY_ALLOCATABLE_EVICT),
        *(features.CGROUP_RECONCILE, features.SYSTEM_CONFIG, features.TERWAY_QOS),
    }
)
"""Those of the strategies: what collects, reports and serves is put together at the start."""
_GATES: Final = "feature-gates"
LIVE_FLAGS: Final = (
    *(_GATES, "v", "reconcile-interval-seconds", "cpu-suppress-interval-seconds", "resource-force-update-seconds"),
    *("cpu-evict-interval-seconds", "cpu-evict-cool-time-seconds"),
    *("memory-evict-interval-seconds", "memory-evict-cool-time-seconds"),
    *("observe-only", "qos-extension-plugins"),
)
_OF_THE_ORIGINAL: Final = "qos-plugin-extra-configs"
"""A key that the original names and does not read: a ConfigMap that has it is not refused."""
_SHOWN: Final = 100
"""Letters of a value that is not usable."""
_PATIENCE: Final = 10.0
"""Seconds for which the start waits for the ConfigMap: a right that is missing must not keep a node unmeasured."""


class InvalidConfigurationError(KoordinatorError):
    """A ConfigMap that cannot be used; the message, of 1,024 bytes at most, names each key, its value and
    what is allowed."""


def read_configuration(read: ReadOptions, data: Mapping[str, str]) -> Options:
    """What a ConfigMap comes to. InvalidConfigurationError with all its mistakes."""
    flags = {key: text.strip() for key, text in data.items() if key != _OF_THE_ORIGINAL}
    before, problems = read({}), list[str]()
    for key, text in flags.items():
        try:
            _check(key, text, read, before)
        except ConfigurationError as error:
            value = repr(error.value)
            shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
            problems.append(f"data.{error.field.removeprefix('--')}: {shown} is not usable: {error.allowed}")
    if problems:
        # It goes into an annotation, too, and an object with a very long one is refused.
        raise InvalidConfigurationError(limit_note("; ".join(problems)))
    return read(flags)


def _check(key: str, text: str, read: ReadOptions, before: Options) -> None:
    if key not in LIVE_FLAGS:
        hint = did_you_mean(key, LIVE_FLAGS).removeprefix("; ") or f"allowed are {', '.join(LIVE_FLAGS)}"
        raise ConfigurationError(key, text, f"this is no flag that can change while koordlet runs; {hint}")
    after = read({key: text})
    for name in after.features:
        if name not in LIVE_GATES and after.features.enabled(name) != before.features.enabled(name):
            live = ", ".join(sorted(LIVE_GATES))
            allowed = f"the command line alone switches this gate; these can change while koordlet runs: {live}"
            raise ConfigurationError(f"{_GATES} {name}", after.features.enabled(name), allowed)


class Configuration:
    """``options`` are those in force: of the command line, and of the last good ConfigMap. One that is deleted leaves
    those of the command line, as a restart would."""

    def __init__(self, options: Options, informers: InformerSet, events: EventRecorder, clock: Clock) -> None:
        self.options = options
        self._clock = clock
        self._events = events
        self._version = ""
        self._since = clock.now()
        self._refused = ""
        """Why the ConfigMap, as it is now, is not in force."""
        self._changed = asyncio.Event()
        self._watched: WatchedConfiguration | None = options.configuration
        if (watched := self._watched) is None:
            return
        self._informer = informers.informer(
            CONFIG_MAPS, namespace=watched.namespace, field_selector=f"metadata.name={watched.name}"
        )
        self._informer.add_handlers(
            name="configuration",
            on_add=lambda config_map, _: self._take(config_map),
            on_update=lambda old, new: self._take(new) if old.data != new.data else None,
            on_delete=lambda _: self._put_in_force({}, ""),
        )

    async def first(self) -> Options:
        """The options to start with; those of the command line if the ConfigMap cannot be read for some seconds."""
        if self._watched is not None:
            try:
                await within(self._clock, _PATIENCE, self._informer.wait_synced())
            except TimeoutError:
                why = self._informer.reflector_statistics.last_error or "no response"
                logger.warning("%s cannot be read, the flags of the command line hold: %s", self._name, why)
        self._changed.clear()
        return self.options

    async def follow(self, apply: Callable[[Options], Awaitable[None]]) -> None:
        """Call ``apply`` with what comes into force after ``first``, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await apply(self.options)

    def export(self, metrics: AgentMetrics) -> None:
        """Which configuration is in force since when, and whether a newer one was refused."""
        metrics.latest(
            "configuration_since_timestamp_seconds",
            "since when the ConfigMap of this resourceVersion is in force; without one, the command line alone",
            ("resource_version",),
            self._in_force,
        )
        metrics.value(
            "configuration_refused",
            "1 while the ConfigMap is not usable, so that an earlier one, or the command line, is in force",
            lambda: None if self._watched is None else float(bool(self._refused)),
        )

    def report(self) -> Mapping[str, str]:
        """The same for the NodeResourceTopology; nothing while there is no ConfigMap."""
        found = {"resourceVersion": self._version, "refused": self._refused}
        said = {name: text for name, text in found.items() if text}
        return {**said, "since": format_time(self._since)} if said else {}

    def _in_force(self) -> Rows:
        return [] if self._watched is None else [((self._version,), self._since.timestamp())]

    @property
    def _name(self) -> str:
        assert self._watched is not None
        return f"ConfigMap {self._watched.namespace}/{self._watched.name}"

    def _take(self, config_map: ConfigMap) -> None:
        version = config_map.metadata.resource_version
        try:
            self._put_in_force(config_map.data, version)
        except InvalidConfigurationError as error:
            stays = f"resourceVersion {self._version} stays" if self._version else "the command line alone is"
            text, self._refused = f"refused, {stays} in force: {error}", f"resourceVersion {version}: {error}"
            logger.warning("%s: %s", self._name, text)
            self._events.event(reference_to(CONFIG_MAPS, config_map), "Warning", REASON, "Configuring", text)

    def _put_in_force(self, data: Mapping[str, str], version: str) -> None:
        assert self._watched is not None
        self.options = read_configuration(self._watched.read, data)
        self._version, self._since, self._refused = version, self._clock.now(), ""
        flags = " ".join(f"--{key}={text.strip()}" for key, text in data.items() if key != _OF_THE_ORIGINAL)
        logger.info("%s is in force with %s", self._name, flags or "no flags")
        self._changed.set()
