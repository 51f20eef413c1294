"""One table of the arguments of each plugin, with the functions that complete and check them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from koordinator.api.strict_decoding import decode_strictly
from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration import argument_checks, koordinator_checks, upstream_arguments
from koordinator.scheduler.configuration.arguments import (
    Arguments,
    LoadAwareSchedulingArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
)
from koordinator.scheduler.configuration.koordinator_arguments import (
    CoschedulingArgs,
    DeviceShareArgs,
    ElasticQuotaArgs,
    NodeNUMAResourceArgs,
    NodeResourcesFitPlusArgs,
    ReservationArgs,
    ScarceResourceAvoidanceArgs,
    SchedulingHintArgs,
)

A = TypeVar("A", bound=Arguments)
_Complete = Callable[[Any, str], Arguments]
_GROUP: Final = "kubescheduler.config.k8s.io"
VERSION: Final = f"{_GROUP}/v1"
OLD_VERSIONS: Final = (f"{_GROUP}/v1beta2", f"{_GROUP}/v1beta3")


def _as_it_is(args: A, path: str) -> A:
    return args


ARGUMENT_KINDS: Final[Mapping[str, tuple[type[Arguments], _Complete]]] = MappingProxyType(
    {
        "NodeAffinity": (NodeAffinityArgs, argument_checks.check_added_affinity),
        "NodeResourcesFit": (NodeResourcesFitArgs, argument_checks.check_fit),
        "NodeResourcesBalancedAllocation": (
            NodeResourcesBalancedAllocationArgs,
            argument_checks.check_balanced,
        ),
        "VolumeBinding": (upstream_arguments.VolumeBindingArgs, upstream_arguments.check_volume_binding),
        "PodTopologySpread": (upstream_arguments.PodTopologySpreadArgs, upstream_arguments.check_topology_spread),
        "InterPodAffinity": (upstream_arguments.InterPodAffinityArgs, upstream_arguments.check_inter_pod_affinity),
        "DynamicResources": (upstream_arguments.DynamicResourcesArgs, upstream_arguments.check_dynamic_resources),
        "DefaultPreemption": (upstream_arguments.DefaultPreemptionArgs, upstream_arguments.check_preemption),
        "LoadAwareScheduling": (LoadAwareSchedulingArgs, argument_checks.complete_load_aware),
        "NodeNUMAResource": (NodeNUMAResourceArgs, koordinator_checks.check_numa),
        "DeviceShare": (DeviceShareArgs, koordinator_checks.check_device_share),
        "Reservation": (ReservationArgs, koordinator_checks.complete_reservation),
        "ElasticQuota": (ElasticQuotaArgs, koordinator_checks.complete_elastic_quota),
        "Coscheduling": (CoschedulingArgs, koordinator_checks.check_coscheduling),
        "NodeResourcesFitPlus": (NodeResourcesFitPlusArgs, koordinator_checks.check_fit_plus),
        "ScarceResourceAvoidance": (ScarceResourceAvoidanceArgs, _as_it_is),
        "SchedulingHint": (SchedulingHintArgs, koordinator_checks.check_scheduling_hint),
    }
)


def make_arguments(name: str, document: Mapping[str, Any], path: str) -> Arguments:
    """The arguments of the plugin ``name`` with defaults. Raises ConfigurationError.

    The type meta may be omitted; if given, it must be right.
    """
    if name not in ARGUMENT_KINDS:
        raise ConfigurationError(path, dict(document), f"none: {name} takes no arguments")
    expected, complete = ARGUMENT_KINDS[name]
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind not in (None, "", f"{name}Args"):
        raise ConfigurationError(f"{path}.kind", kind, f"{name}Args")
    if version not in (None, "", VERSION, *OLD_VERSIONS):
        raise ConfigurationError(f"{path}.apiVersion", version, VERSION)
    without_type = {field: value for field, value in document.items() if field not in ("kind", "apiVersion")}
    return complete(decode_strictly(without_type, expected, path), path)
