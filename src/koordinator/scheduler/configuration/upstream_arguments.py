"""Arguments of upstream's plugins: read, completed and checked, so that errors show at the start; and the checks of
values that arguments of several plugins have, Koordinator's among them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from koordinator.api.component_configuration import Strict
from koordinator.api.duration import GoDuration
from koordinator.api.pod import NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, TopologySpreadConstraint
from koordinator.base.errors import ConfigurationError

_STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LONGEST_NAME: Final = 63
_LONGEST_SUBDOMAIN: Final = 253
_REQUESTS: Final = "requests."
QUALIFIED_NAME: Final = "a name of letters, digits, '-', '_' and '.', with at most a DNS subdomain and '/' before it"


def is_qualified_name(text: str) -> bool:
    """Whether the text can be a label key or a resource name."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def is_extended_resource(name: str) -> bool:
    """Whether the name is that of a resource which Kubernetes itself does not define."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_REQUESTS):
        return False
    return is_qualified_name(_REQUESTS + name)


def check_range(value: int, path: str, least: int, most: int | None = None) -> None:
    """Raises ConfigurationError for a value below ``least`` or above ``most``."""
    if value < least or (most is not None and value > most):
        raise ConfigurationError(path, value, f"{least} or more" if most is None else f"{least} to {most}")


def check_candidate_nodes(percentage: int, absolute: int, path: str, *, is_used: bool = True) -> None:
    """Raises ConfigurationError for invalid numbers of candidate nodes for preemption. ``is_used``: at least one node
    must be allowed."""
    check_range(percentage, f"{path}.minCandidateNodesPercentage", 0, 100)
    check_range(absolute, f"{path}.minCandidateNodesAbsolute", 0)
    if is_used and percentage == absolute == 0:
        allowed = "more than 0 where minCandidateNodesAbsolute is 0"
        raise ConfigurationError(f"{path}.minCandidateNodesPercentage", percentage, allowed)


def check_one_of(value: str, path: str, allowed: Collection[str]) -> None:
    """Raises ConfigurationError for any other value."""
    if value not in allowed:
        raise ConfigurationError(path, value, f"one of {', '.join(each or repr(each) for each in allowed)}")


def check_values(values: Mapping[str, int], path: str, least: int, most: int) -> None:
    """``check_range`` for each of the values."""
    for name, value in values.items():
        check_range(value, f"{path}[{name}]", least, most)


def check_duration(duration: timedelta, path: str) -> None:
    """Raises ConfigurationError for a negative duration."""
    if duration < timedelta():
        raise ConfigurationError(path, str(duration), "0s or more")


class Arguments(Strict):
    """Base of all kinds of arguments; the type meta may be omitted, as in the original's examples."""

    api_version: str = ""
    kind: str = ""

    def completed(self, path: str) -> Arguments:
        """The arguments with what an empty field stands for. Raises ConfigurationError with a path below ``path`` for
        one that is not valid."""
        return self


class ResourceSpec(Strict):
    name: str
    weight: int = 1


def _cpu_and_memory() -> list[ResourceSpec]:
    return [ResourceSpec(name="cpu"), ResourceSpec(name="memory")]


class UtilizationShapePoint(Strict):
    utilization: int
    score: int


class RequestedToCapacityRatio(Strict):
    shape: list[UtilizationShapePoint] = []


class ScoringStrategy(Strict):
    type: str = "LeastAllocated"
    resources: list[ResourceSpec] = msgspec.field(default_factory=_cpu_and_memory)
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None


class NodeResourcesFitArgs(Arguments):
    ignored_resources: list[str] = []
    ignored_resource_groups: list[str] = []
    scoring_strategy: ScoringStrategy = ScoringStrategy()

    def completed(self, path: str) -> NodeResourcesFitArgs:
        """A weight of 0 is 1, no resources are cpu and memory."""
        strategy = self.scoring_strategy
        resources = _with_weights(strategy.resources) or NodeResourcesFitArgs().scoring_strategy.resources
        args = replace(self, scoring_strategy=replace(strategy, resources=resources))
        for index, name in enumerate(args.ignored_resources):
            if not is_qualified_name(name):
                raise ConfigurationError(f"{path}.ignoredResources[{index}]", name, QUALIFIED_NAME)
        for index, name in enumerate(args.ignored_resource_groups):
            if "/" in name or not is_qualified_name(name):
                raise ConfigurationError(f"{path}.ignoredResourceGroups[{index}]", name, "a name without a slash")
        _check_strategy(args.scoring_strategy, f"{path}.scoringStrategy")
        return args


class NodeResourcesBalancedAllocationArgs(Arguments):
    resources: list[ResourceSpec] = msgspec.field(default_factory=_cpu_and_memory)

    def completed(self, path: str) -> NodeResourcesBalancedAllocationArgs:
        """The plugin ignores weights, which must be 1."""
        resources = _with_weights(self.resources) or NodeResourcesBalancedAllocationArgs().resources
        args = replace(self, resources=resources)
        seen: set[str] = set()
        for index, resource in enumerate(args.resources):
            if resource.weight != 1:
                raise ConfigurationError(f"{path}.resources[{index}].weight", resource.weight, "1")
            if resource.name in seen:
                raise ConfigurationError(f"{path}.resources[{index}].name", resource.name, "each resource once")
            seen.add(resource.name)
        return args


class NodeAffinityArgs(Arguments):
    added_affinity: NodeAffinity | None = None

    def completed(self, path: str) -> NodeAffinityArgs:
        """Refuses a requirement that cannot be met: it would keep every pod from every node."""
        if self.added_affinity is None:
            return self
        required = self.added_affinity.required_during_scheduling_ignored_during_execution
        preferred = self.added_affinity.preferred_during_scheduling_ignored_during_execution
        where = f"{path}.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        for index, term in enumerate(required.node_selector_terms if required else []):
            _check_term(term, f"{where}.nodeSelectorTerms[{index}]")
        where = f"{path}.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"
        for index, weighted in enumerate(preferred):
            _check_term(weighted.preference, f"{where}[{index}].preference")
        return self


class DefaultPreemptionArgs(Arguments):
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def completed(self, path: str) -> DefaultPreemptionArgs:
        """At least one candidate must be allowed."""
        check_candidate_nodes(self.min_candidate_nodes_percentage, self.min_candidate_nodes_absolute, path)
        return self


class InterPodAffinityArgs(Arguments):
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def completed(self, path: str) -> InterPodAffinityArgs:
        check_range(self.hard_pod_affinity_weight, f"{path}.hardPodAffinityWeight", 0, 100)
        return self


class PodTopologySpreadArgs(Arguments):
    default_constraints: list[TopologySpreadConstraint] = []
    defaulting_type: str = "System"

    def completed(self, path: str) -> PodTopologySpreadArgs:
        """Constraints are allowed only with the type List, each pair of key and action once."""
        check_one_of(self.defaulting_type, f"{path}.defaultingType", ("System", "List"))
        if self.default_constraints and self.defaulting_type != "List":
            raise ConfigurationError(f"{path}.defaultingType", self.defaulting_type, "List where constraints are given")
        seen: set[tuple[str, str]] = set()
        for index, constraint in enumerate(self.default_constraints):
            where = f"{path}.defaultConstraints[{index}]"
            _check_constraint(constraint, where)
            pair = (constraint.topology_key, constraint.when_unsatisfiable)
            if pair in seen:
                raise ConfigurationError(where, pair, "topologyKey and whenUnsatisfiable may stand together only once")
            seen.add(pair)
        return self


class VolumeBindingArgs(Arguments):
    bind_timeout_seconds: int = 600
    shape: list[UtilizationShapePoint] | None = None

    def completed(self, path: str) -> VolumeBindingArgs:
        """A shape belongs to a feature that upstream has switched off."""
        check_range(self.bind_timeout_seconds, f"{path}.bindTimeoutSeconds", 0)
        if self.shape is not None:
            raise ConfigurationError(f"{path}.shape", self.shape, "none without the feature StorageCapacityScoring")
        return self


class DynamicResourcesArgs(Arguments):
    filter_timeout: GoDuration = GoDuration(seconds=10)
    binding_timeout: GoDuration | None = None

    def completed(self, path: str) -> DynamicResourcesArgs:
        """A binding timeout belongs to a feature that upstream has switched off."""
        check_duration(self.filter_timeout, f"{path}.filterTimeout")
        if self.binding_timeout is not None:
            allowed = "none without the feature DRADeviceBindingConditions"
            raise ConfigurationError(f"{path}.bindingTimeout", str(self.binding_timeout), allowed)
        return self


def check_weights(resources: Sequence[ResourceSpec], path: str) -> None:
    """Weights of resources are 1 to 100."""
    for index, resource in enumerate(resources):
        check_range(resource.weight, f"{path}[{index}].weight", 1, 100)


def _with_weights(resources: Sequence[ResourceSpec]) -> list[ResourceSpec]:
    return [replace(resource, weight=resource.weight or 1) for resource in resources]


def _check_term(term: NodeSelectorTerm, path: str) -> None:
    for index, requirement in enumerate(term.match_expressions):
        where = f"{path}.matchExpressions[{index}]"
        if not is_qualified_name(requirement.key):
            raise ConfigurationError(f"{where}.key", requirement.key, QUALIFIED_NAME)
        _check_requirement(requirement, where)
    for index, requirement in enumerate(term.match_fields):
        where = f"{path}.matchFields[{index}]"
        if requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1:
            raise ConfigurationError(where, requirement, "the operator In or NotIn with one value")


def _check_requirement(requirement: NodeSelectorRequirement, path: str) -> None:
    operator, values = requirement.operator, list(requirement.values)
    check_one_of(operator, f"{path}.operator", _OPERATORS)
    if operator in ("In", "NotIn") and not values:
        raise ConfigurationError(f"{path}.values", values, f"at least one for {operator}")
    if operator in ("Exists", "DoesNotExist") and values:
        raise ConfigurationError(f"{path}.values", values, f"none for {operator}")
    if operator in ("Gt", "Lt") and not (len(values) == 1 and _INTEGER.fullmatch(values[0])):
        raise ConfigurationError(f"{path}.values", values, f"one integer for {operator}")


def _check_strategy(strategy: ScoringStrategy, path: str) -> None:
    check_one_of(strategy.type, f"{path}.type", _STRATEGIES)
    check_weights(strategy.resources, f"{path}.resources")
    ratio = strategy.requested_to_capacity_ratio
    if ratio is not None or strategy.type == "RequestedToCapacityRatio":
        _check_shape(ratio.shape if ratio else [], f"{path}.requestedToCapacityRatio.shape")


def _check_shape(shape: Sequence[UtilizationShapePoint], path: str) -> None:
    if not shape:
        raise ConfigurationError(path, shape, "at least one point")
    for index, point in enumerate(shape):
        check_range(point.utilization, f"{path}[{index}].utilization", 0, 100)
        check_range(point.score, f"{path}[{index}].score", 0, 10)
        if index and point.utilization <= shape[index - 1].utilization:
            allowed = "more than that of the point before"
            raise ConfigurationError(f"{path}[{index}].utilization", point.utilization, allowed)


def _check_constraint(constraint: TopologySpreadConstraint, path: str) -> None:
    check_range(constraint.max_skew, f"{path}.maxSkew", 1)
    if not is_qualified_name(constraint.topology_key):
        raise ConfigurationError(f"{path}.topologyKey", constraint.topology_key, QUALIFIED_NAME)
    check_one_of(constraint.when_unsatisfiable, f"{path}.whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"))
    if constraint.label_selector is not None:
        allowed = "none: it follows from what each pod belongs to"
        raise ConfigurationError(f"{path}.labelSelector", constraint.label_selector, allowed)
