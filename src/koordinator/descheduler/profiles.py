"""Profiles put together: their plugins, and the evictor that these ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from koordinator.api.node import Node
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.configuration.arguments import checked_selector
from koordinator.descheduler.configuration.loading import ProfileConfiguration
from koordinator.descheduler.eviction_pipeline import ProfileEvictor
from koordinator.descheduler.framework import (
    BalancePlugin,
    DeschedulePlugin,
    Evictor,
    EvictPlugin,
    FilterPlugin,
    Handle,
    Plugin,
)
from koordinator.model.label_selector import CompiledSelector

P = TypeVar("P", bound=Plugin)


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile that can run."""

    name: str
    selector: CompiledSelector | None
    """Of the nodes that it looks at; None for all."""
    evictor: ProfileEvictor
    plugins: Mapping[str, Plugin]
    deschedule: Sequence[DeschedulePlugin]
    balance: Sequence[BalancePlugin]

    def looks_at(self, node: Node) -> bool:
        """Whether the node is one of those that the profile is for."""
        return self.selector is None or self.selector.matches(node.metadata.labels)

    def rehearsed(self) -> Profile:
        """A copy of it for a plan that is not carried out: what its plugins prepare and remember is their own."""
        evictor = ProfileEvictor()
        copies: dict[int, Plugin] = {}

        def copied(plugin: P) -> P:
            if id(plugin) not in copies:
                made = copies[id(plugin)] = plugin.rehearsing()
                made.handle = replace(plugin.handle, evictor=evictor)
            return cast("P", copies[id(plugin)])

        evictor.connect([copied(each) for each in self.evictor.filters], copied(self.evictor.plugin))
        return Profile(
            self.name,
            self.selector,
            evictor,
            {name: copied(plugin) for name, plugin in self.plugins.items()},
            [copied(plugin) for plugin in self.deschedule],
            [copied(plugin) for plugin in self.balance],
        )


def build_profile(
    configuration: ProfileConfiguration, make_handle: Callable[[ProfileConfiguration, Evictor], Handle]
) -> Profile:
    """Make each plugin once. Raises ConfigurationError for what a plugin says of its arguments."""
    name = configuration.document.name
    evictor = ProfileEvictor()
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
