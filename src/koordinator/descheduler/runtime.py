"""Profiles put together: their plugins, and the evictor that stands between plugins and evictions.

The evictor keeps the limits of a cycle, so that no plugin can evict more than the configuration allows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import DeleteOptions
from koordinator.base.errors import ConfigurationError
from koordinator.base.logs import fields
from koordinator.descheduler.configuration import ProfileConfiguration
from koordinator.descheduler.configuration.arguments import checked_selector
from koordinator.descheduler.framework import (
    NOTHING_REFUSED,
    BalancePlugin,
    DeschedulePlugin,
    EvictionResult,
    Evictor,
    EvictPlugin,
    FilterPlugin,
    Handle,
    Plugin,
    Refusals,
)
from koordinator.model.label_selector import CompiledSelector

logger = logging.getLogger(__name__)

P = TypeVar("P", bound=Plugin)


class EvictionLimiter:
    """How many pods may be evicted in one cycle; None is no limit, 0 forbids every eviction."""

    def __init__(self, per_node: int | None = None, per_namespace: int | None = None, total: int | None = None) -> None:
        self._per_node = per_node
        self._per_namespace = per_namespace
        self._limit = total
        self._nodes: dict[str, int] = {}
        self._namespaces: dict[str, int] = {}
        self.total = 0
        """Evictions in this cycle."""

    def reset(self) -> None:
        """A new cycle begins."""
        self._nodes.clear()
        self._namespaces.clear()
        self.total = 0

    def refusal(self, pod: Pod) -> str:
        """Why the pod would be one too many; "" when it would not."""
        node, namespace = pod.spec.node_name, pod.metadata.namespace
        if self._per_node is not None and node and self._nodes.get(node, 0) >= self._per_node:
            return "maximum number of evicted pods per node reached"
        if self._per_namespace is not None and self._namespaces.get(namespace, 0) >= self._per_namespace:
            return "maximum number of evicted pods per namespace reached"
        if self._limit is not None and self.total >= self._limit:
            return "maximum number of evicted pods total reached"
        return ""

    def done(self, pod: Pod) -> None:
        """The pod has been evicted."""
        if pod.spec.node_name:
            self._nodes[pod.spec.node_name] = self._nodes.get(pod.spec.node_name, 0) + 1
        self._namespaces[pod.metadata.namespace] = self._namespaces.get(pod.metadata.namespace, 0) + 1
        self.total += 1


class EvictorProxy(Evictor):
    """The evictor of one profile. Plugins get it before all of them exist; they call it only afterwards."""

    def __init__(self, limiter: EvictionLimiter, *, dry_run: bool) -> None:
        self._limiter = limiter
        self._dry_run = dry_run
        self._filters: Sequence[FilterPlugin] = ()
        self._evict_plugin: EvictPlugin | None = None

    def connect(self, filters: Sequence[FilterPlugin], evict_plugin: EvictPlugin) -> None:
        """Set the plugins that are called from here on."""
        self._filters = filters
        self._evict_plugin = evict_plugin

    def filter(self, pod: Pod) -> Refusals:
        for plugin in self._filters:
            refusals = plugin.filter(pod)
            if refusals:
                return refusals
        return NOTHING_REFUSED

    def pre_eviction_filter(self, pod: Pod) -> Refusals:
        for plugin in self._filters:
            refusals = plugin.pre_eviction_filter(pod)
            if refusals:
                return refusals
        return NOTHING_REFUSED

    async def evict(self, pod: Pod, plugin: str, reason: str, options: DeleteOptions | None) -> EvictionResult:
        refusal = self._limiter.refusal(pod)
        if refusal:
            return EvictionResult(False, refusal)
        if self._dry_run or self._evict_plugin is None:
            logger.info(
                "Evicted pod in dry run mode",
                extra=fields(pod=pod.metadata.key, reason=reason, strategy=plugin, node=pod.spec.node_name),
            )
            result = EvictionResult(True, "dry run")
        else:
            result = await self._evict_plugin.evict(pod, plugin, reason, options)
        if result.evicted:
            self._limiter.done(pod)
        return result


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile that can run."""

    name: str
    selector: CompiledSelector | None
    """Of the nodes that it looks at; None for all."""
    evictor: EvictorProxy
    plugins: Mapping[str, Plugin]
    deschedule: Sequence[DeschedulePlugin]
    balance: Sequence[BalancePlugin]

    def looks_at(self, node: Node) -> bool:
        """Whether the node is one of those that the profile is for."""
        return self.selector is None or self.selector.matches(node.metadata.labels)


def build_profile(
    configuration: ProfileConfiguration,
    limiter: EvictionLimiter,
    make_handle: Callable[[ProfileConfiguration, Evictor], Handle],
    *,
    dry_run: bool,
) -> Profile:
    """Make each plugin once. Raises ConfigurationError for what a plugin says of its arguments."""
    name = configuration.document.name
    evictor = EvictorProxy(limiter, dry_run=dry_run)
    handle = make_handle(configuration, evictor)
    plugins: dict[str, Plugin] = {}
    for plugin_name, plugin in configuration.plugins.items():
        try:
            plugins[plugin_name] = plugin(configuration.arguments[plugin_name], handle)
        except ConfigurationError:
            raise
        except Exception as error:
            where = f"creating profile for descheduler name {name}"
            text = f'initializing plugin "{plugin_name}": {type(error).__name__}: {error}'
            raise ConfigurationError(where, plugin_name, text) from error

    def at(point: str, expected: type[P]) -> list[P]:
        return [cast("P", plugins[each]) for each in configuration.points[point]]

    evictor.connect(at("filter", FilterPlugin), at("evict", EvictPlugin)[0])
    return Profile(
        name,
        checked_selector(configuration.document.node_selector, f"profile {name}: nodeSelector"),
        evictor,
        plugins,
        at("deschedule", DeschedulePlugin),
        at("balance", BalancePlugin),
    )
