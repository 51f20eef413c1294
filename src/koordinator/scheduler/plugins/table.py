"""Every implemented built-in plugin, by its name in configurations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.plugins.coscheduling.plugin import Coscheduling
from koordinator.scheduler.plugins.default_binder import DefaultBinder
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind
from koordinator.scheduler.plugins.default_preemption import DefaultPreemption
from koordinator.scheduler.plugins.device_share.plugin import DeviceShare
from koordinator.scheduler.plugins.dynamic_resources import DynamicResources
from koordinator.scheduler.plugins.elastic_quota.plugin import ElasticQuota
from koordinator.scheduler.plugins.image_locality import ImageLocality
from koordinator.scheduler.plugins.inter_pod_affinity.plugin import InterPodAffinity
from koordinator.scheduler.plugins.load_aware.plugin import LoadAwareScheduling
from koordinator.scheduler.plugins.node_affinity import NodeAffinity
from koordinator.scheduler.plugins.node_name import NodeName
from koordinator.scheduler.plugins.node_numa_resource.plugin import NodeNUMAResource
from koordinator.scheduler.plugins.node_ports import NodePorts
from koordinator.scheduler.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from koordinator.scheduler.plugins.node_resources.fit import NodeResourcesFit
from koordinator.scheduler.plugins.node_resources.fit_plus import NodeResourcesFitPlus
from koordinator.scheduler.plugins.node_unschedulable import NodeUnschedulable
from koordinator.scheduler.plugins.pod_topology_spread.plugin import PodTopologySpread
from koordinator.scheduler.plugins.priority_sort import PrioritySort
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.scarce_resource_avoidance import ScarceResourceAvoidance
from koordinator.scheduler.plugins.scheduling_gates import SchedulingGates
from koordinator.scheduler.plugins.scheduling_hint import SchedulingHint
from koordinator.scheduler.plugins.taint_toleration import TaintToleration
from koordinator.scheduler.plugins.volumes.binding import VolumeBinding
from koordinator.scheduler.plugins.volumes.limits import NodeVolumeLimits
from koordinator.scheduler.plugins.volumes.restrictions import VolumeRestrictions
from koordinator.scheduler.plugins.volumes.zone import VolumeZone

BUILT_IN: Final[Mapping[str, type[Plugin]]] = MappingProxyType(
    {
        plugin.name: plugin
        for plugin in (
            SchedulingGates,
            PrioritySort,
            NodeUnschedulable,
            NodeName,
            TaintToleration,
            NodeAffinity,
            NodePorts,
            NodeResourcesFit,
            VolumeRestrictions,
            NodeVolumeLimits,
            VolumeBinding,
            VolumeZone,
            PodTopologySpread,
            InterPodAffinity,
            DynamicResources,
            NodeResourcesBalancedAllocation,
            ImageLocality,
            LoadAwareScheduling,
            NodeNUMAResource,
            NodeResourcesFitPlus,
            ScarceResourceAvoidance,
            SchedulingHint,
            DeviceShare,
            Coscheduling,
            ElasticQuota,
            ReservationPlugin,
            DefaultPreemption,
            DefaultPreBind,
            DefaultBinder,
        )
    }
)
