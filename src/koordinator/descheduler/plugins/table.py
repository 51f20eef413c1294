"""All built-in plugins by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from koordinator.descheduler.framework import Plugin
from koordinator.descheduler.plugins.low_node_load.plugin import LowNodeLoad

DECIDING: Final[Mapping[str, type[Plugin]]] = MappingProxyType({plugin.name: plugin for plugin in (LowNodeLoad,)})
"""Those that decide which pods to evict, and do no I/O."""
