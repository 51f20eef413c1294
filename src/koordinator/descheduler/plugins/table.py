"""All built-in plugins that decide which pods to evict, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from koordinator.descheduler.framework import Plugin
from koordinator.descheduler.plugins.custom_priority import CustomPriority
from koordinator.descheduler.plugins.fragmentation_aware import FragmentationAware
from koordinator.descheduler.plugins.low_node_load.plugin import LowNodeLoad
from koordinator.descheduler.plugins.scale_down_bin_pack import ScaleDownBinPack
from koordinator.descheduler.plugins.upstream.node_rules import (
    RemovePodsViolatingInterPodAntiAffinity,
    RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingNodeTaints,
)
from koordinator.descheduler.plugins.upstream.node_utilization import HighNodeUtilization, LowNodeUtilization
from koordinator.descheduler.plugins.upstream.pod_condition import (
    PodLifeTime,
    RemoveFailedPods,
    RemovePodsHavingTooManyRestarts,
)
from koordinator.descheduler.plugins.upstream.remove_duplicates import RemoveDuplicates
from koordinator.descheduler.plugins.upstream.topology_spread import RemovePodsViolatingTopologySpreadConstraint

_PLUGINS: Final[tuple[type[Plugin], ...]] = (
    LowNodeLoad,
    CustomPriority,
    FragmentationAware,
    ScaleDownBinPack,
    HighNodeUtilization,
    LowNodeUtilization,
    PodLifeTime,
    RemoveDuplicates,
    RemoveFailedPods,
    RemovePodsHavingTooManyRestarts,
    RemovePodsViolatingInterPodAntiAffinity,
    RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingNodeTaints,
    RemovePodsViolatingTopologySpreadConstraint,
)
DECIDING: Final[Mapping[str, type[Plugin]]] = MappingProxyType({plugin.name: plugin for plugin in _PLUGINS})
