"""The SLO ConfigMap as controllers see it: the last valid configuration, updated as the ConfigMap changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from koordinator.api.core import ConfigMap
from koordinator.api.kinds import CONFIG_MAPS
from koordinator.api.slo_controller_config import DEFAULT_NAME
from koordinator.base.metrics import Metrics
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.missing import missing_slo_configuration
from koordinator.manager.options import Options
from koordinator.model.slo_configuration.configuration import ConfigurationProblem, SLOConfiguration
from koordinator.model.slo_configuration.configuration_keys import (
    COLOCATION_UNMARSHAL_FAILED,
    CPU_NORMALIZATION_UNMARSHAL_FAILED,
    RESOURCE_AMPLIFICATION_UNMARSHAL_FAILED,
    SLO_UNMARSHAL_FAILED,
)
from koordinator.model.slo_configuration.extensions import NodeSLOExtension

logger = logging.getLogger(__name__)

_SOURCES: Final = {
    COLOCATION_UNMARSHAL_FAILED: "noderesource-controller",
    SLO_UNMARSHAL_FAILED: "nodeslo-controller",
    CPU_NORMALIZATION_UNMARSHAL_FAILED: "noderesource",
    RESOURCE_AMPLIFICATION_UNMARSHAL_FAILED: "noderesource",
}
"""The component that writes an event in the original, by the event's reason."""


class SLOConfigurationSource:
    """``current`` is the configuration in force. Deleting the ConfigMap leaves the last one in force."""

    def __init__(
        self,
        informers: InformerSet,
        options: Options,
        events: EventBroadcaster,
        metrics: Metrics,
        extensions: tuple[NodeSLOExtension, ...] = (),
    ) -> None:
        self.current = SLOConfiguration.with_extensions(extensions)
        self._listeners: list[Callable[[], None]] = []
        self._recorders = {reason: events.recorder(source) for reason, source in _SOURCES.items()}
        self._in_error = metrics.gauge(
            "koord_manager_slo_configuration_in_error",
            "1 while something in a key of the SLO ConfigMap cannot be used; what was in force before then is",
            ("key",),
        )
        self._keys_ever_in_error: set[str] = set()
        self._seen = False
        self._in_charge = 0
        self._unreported: tuple[ConfigMap, tuple[ConfigurationProblem, ...]] | None = None
        self._missing = missing_slo_configuration(options.slo_config_name, DEFAULT_NAME, options.config_namespace)
        self._informer = informers.informer(
            CONFIG_MAPS, namespace=options.config_namespace, field_selector=f"metadata.name={options.slo_config_name}"
        )
        self._informer.add_handlers(
            name="SLO configuration",
            on_add=lambda config_map, _: self._update(config_map),
            on_update=lambda old, new: self._update(new) if old.data != new.data else None,
        )

    def listen(self, changed: Callable[[], None]) -> None:
        """Register ``changed``, called whenever the configuration has changed."""
        self._listeners.append(changed)

    @contextmanager
    def in_charge(self) -> Iterator[None]:
        """The context in which a controller works. All replicas watch the ConfigMap, but only the leader, which is in
        this context, writes the events about it."""
        self.mark_synced()
        self._in_charge += 1
        self._write_events()
        try:
            yield
        finally:
            self._in_charge -= 1

    def mark_synced(self) -> None:
        """Called when the informers are in sync: without a ConfigMap by now, the defaults are in force."""
        if not self._seen:
            self._seen = True
            logger.warning("%s", self._missing)
            self._take(*self.current.updated(None))

    def _update(self, config_map: ConfigMap) -> None:
        self._seen = True
        configuration, problems = self.current.updated(config_map.data)
        for problem in problems:
            logger.warning("ConfigMap %s: %s: %s", config_map.metadata.key, problem.key, problem.message)
        self._unreported = config_map, problems
        self._write_events()
        self._take(configuration, problems)

    def _write_events(self) -> None:
        """Write one event per key: several that agree in all but their text would be aggregated under the text of the
        first."""
        if not self._in_charge or self._unreported is None:
            return
        (config_map, problems), self._unreported = self._unreported, None
        by_key: dict[str, list[ConfigurationProblem]] = {}
        for problem in problems:
            by_key.setdefault(problem.key, []).append(problem)
        about = reference_to(CONFIG_MAPS, config_map)
        for key, found in by_key.items():
            text = "; ".join(problem.message for problem in found)
            reason = found[0].reason
            self._recorders[reason].event(about, "Warning", reason, f"Read {key}", f"{key}: {text}")

    def _take(self, configuration: SLOConfiguration, problems: Iterable[ConfigurationProblem]) -> None:
        broken = {problem.key for problem in problems}
        self._keys_ever_in_error |= broken
        for key in self._keys_ever_in_error:
            self._in_error.labels(key).set(key in broken)
        changed, self.current = configuration != self.current, configuration
        if changed:
            for listener in self._listeners:
                listener()
