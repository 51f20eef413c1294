"""Arguments of upstream's plugins: read, completed and checked, so that errors show at the start."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from koordinator.api.duration import GoDuration
from koordinator.api.pod import TopologySpreadConstraint
from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration.argument_checks import (
    QUALIFIED_NAME,
    check_candidate_nodes,
    check_range,
    is_qualified_name,
)
from koordinator.scheduler.configuration.arguments import Arguments, UtilizationShapePoint

_DEFAULTING: Final = ("System", "List")
_WHEN_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")


class DefaultPreemptionArgs(Arguments):
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class InterPodAffinityArgs(Arguments):
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class PodTopologySpreadArgs(Arguments):
    default_constraints: list[TopologySpreadConstraint] = []
    defaulting_type: str = "System"


class VolumeBindingArgs(Arguments):
    bind_timeout_seconds: int = 600
    shape: list[UtilizationShapePoint] | None = None


class DynamicResourcesArgs(Arguments):
    filter_timeout: GoDuration = GoDuration(seconds=10)
    binding_timeout: GoDuration | None = None


def check_preemption(args: DefaultPreemptionArgs, path: str) -> DefaultPreemptionArgs:
    """Check DefaultPreemptionArgs: at least one candidate must be allowed."""
    check_candidate_nodes(args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute, path)
    return args


def check_inter_pod_affinity(args: InterPodAffinityArgs, path: str) -> InterPodAffinityArgs:
    """Check InterPodAffinityArgs."""
    check_range(args.hard_pod_affinity_weight, f"{path}.hardPodAffinityWeight", 0, 100)
    return args


def check_topology_spread(args: PodTopologySpreadArgs, path: str) -> PodTopologySpreadArgs:
    """Check PodTopologySpreadArgs: constraints only with the type List, each pair of key and action once."""
    if args.defaulting_type not in _DEFAULTING:
        allowed = f"one of {', '.join(_DEFAULTING)}"
        raise ConfigurationError(f"{path}.defaultingType", args.defaulting_type, allowed)
    if args.default_constraints and args.defaulting_type != "List":
        raise ConfigurationError(f"{path}.defaultingType", args.defaulting_type, "List where constraints are given")
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(args.default_constraints):
        where = f"{path}.defaultConstraints[{index}]"
        _check_constraint(constraint, where)
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            raise ConfigurationError(where, pair, "topologyKey and whenUnsatisfiable may stand together only once")
        seen.add(pair)
    return args


def _check_constraint(constraint: TopologySpreadConstraint, path: str) -> None:
    check_range(constraint.max_skew, f"{path}.maxSkew", 1)
    if not is_qualified_name(constraint.topology_key):
        raise ConfigurationError(f"{path}.topologyKey", constraint.topology_key, QUALIFIED_NAME)
    if constraint.when_unsatisfiable not in _WHEN_UNSATISFIABLE:
        allowed = f"one of {', '.join(_WHEN_UNSATISFIABLE)}"
        raise ConfigurationError(f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, allowed)
    if constraint.label_selector is not None:
        allowed = "none: it follows from what each pod belongs to"
        raise ConfigurationError(f"{path}.labelSelector", constraint.label_selector, allowed)


def check_volume_binding(args: VolumeBindingArgs, path: str) -> VolumeBindingArgs:
    """Check VolumeBindingArgs; a shape belongs to a feature that upstream has switched off."""
    check_range(args.bind_timeout_seconds, f"{path}.bindTimeoutSeconds", 0)
    if args.shape is not None:
        raise ConfigurationError(f"{path}.shape", args.shape, "none without the feature StorageCapacityScoring")
    return args


def check_dynamic_resources(args: DynamicResourcesArgs, path: str) -> DynamicResourcesArgs:
    """Check DynamicResourcesArgs; a binding timeout belongs to a feature that upstream has switched off."""
    if args.filter_timeout < timedelta():
        raise ConfigurationError(f"{path}.filterTimeout", str(args.filter_timeout), "0s or more")
    if args.binding_timeout is not None:
        allowed = "none without the feature DRADeviceBindingConditions"
        raise ConfigurationError(f"{path}.bindingTimeout", str(args.binding_timeout), allowed)
    return args
