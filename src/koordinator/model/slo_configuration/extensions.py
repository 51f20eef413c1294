"""Third-party parts of NodeSLOs: parts of the policy that only their own node agent interprets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from koordinator.api.node import Node


@runtime_checkable
class NodeSLOExtension(Protocol):
    """One third party's part. If it raises, the previous part stays, and its error is reported in an event."""

    @property
    def key(self) -> str:
        """The key of its part in ``spec.extensions``."""

    @property
    def default(self) -> Any:
        """Its configuration without a ConfigMap."""

    def merge(self, old: Any, data: Mapping[str, str]) -> Any:
        """Its configuration after the ConfigMap has become ``data``; must not change ``old``."""

    def for_node(self, node: Node, configuration: Any) -> Any | None:
        """Its part for one node, as plain JSON values; None for no part at all."""


@dataclass(frozen=True, slots=True)
class ConfiguredExtension:
    extension: NodeSLOExtension
    configuration: Any

    def updated(self, data: Mapping[str, str] | None) -> ConfiguredExtension:
        """Raises what the extension raises when it cannot use ``data``."""
        if data is None:
            return replace(self, configuration=self.extension.default)
        return replace(self, configuration=self.extension.merge(self.configuration, data))
