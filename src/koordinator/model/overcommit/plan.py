"""The plan for one node: its amounts, its ratios, those of its zones, and its health, computed from one snapshot.

Which parts of a plan have to be written, and when, depends on the stored node: ``node_diff`` compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from msgspec import Struct

from koordinator.api import annotations as annotation_keys
from koordinator.api.adaptive_slo import AdaptiveSLOState, read_state
from koordinator.api.codec import DecodeError, decode, decode_any, encode
from koordinator.api.meta import WireStruct
from koordinator.api.pod import ResourceList
from koordinator.api.priority import PriorityClass
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import BATCH_CPU, FREE_CPU
from koordinator.model.overcommit import policies as plugin_names
from koordinator.model.overcommit.abnormality import NodeHealth, next_look, observe
from koordinator.model.overcommit.amounts import NORMALIZATION, THIRD_PARTY, ExplainedAmount, Term, published, reset
from koordinator.model.overcommit.batch import (
    BATCH_RESOURCES,
    ZoneBatch,
    batch_cpu,
    batch_memory,
    node_inputs,
    zone_batches,
)
from koordinator.model.overcommit.device_resources import NO_DEVICES, DeviceFacts, DeviceResources
from koordinator.model.overcommit.facts import NO_PODS, MetricFacts, NodeFacts, NodePods, TopologyFacts
from koordinator.model.overcommit.free import FREE_RESOURCES, free_amounts
from koordinator.model.overcommit.mid import MID_RESOURCES, mid_amounts
from koordinator.model.overcommit.policies import CapacityPolicy, Policies, Problem
from koordinator.model.overcommit.ratios import NodeRatios, node_ratios, normalized
from koordinator.model.slo_adaptation import Evidence

# Why a node has no mid, batch or free capacity.
DISABLED: Final = "DisabledInConfig"
NO_NODE_METRIC: Final = "NoNodeMetric"
NEVER_REPORTED: Final = "NeverReported"
METRIC_EXPIRED: Final = "MetricExpired"
NO_READINGS: Final = "NoReadings"
ABNORMAL_READINGS: Final = "AbnormalReadings"
FREE_DISABLED: Final = "FreeResourceDisabled"
_FREE_IS_OFF: Final = "the feature gate FreeResource is off, or --noderesource-plugins leaves FreeResource out"

_NORMALIZED: Final = (BATCH_CPU, FREE_CPU)
_ONE_MOMENT: Final = timedelta(seconds=1)


class Degradation(NamedTuple):
    """Why there is no mid, batch or free capacity: a code and a sentence."""

    code: str
    message: str


class NodeSnapshot(Struct, frozen=True):
    node: NodeFacts
    pods: NodePods = NO_PODS
    metric: MetricFacts | None = None
    """None: there is no NodeMetric."""
    topology: TopologyFacts | None = None
    """None: there is no NodeResourceTopology."""
    device: DeviceFacts | None = NO_DEVICES
    """None: the devices are unknown, so what the node has of them stays."""
    health: NodeHealth | None = None
    """As of the previous plan; None: unknown."""


class Plan(Struct, frozen=True):
    """The desired state of a node and of its NodeResourceTopology."""

    node: str
    amounts: tuple[ExplainedAmount, ...] = ()
    """Mid, batch and free resources of the plugins that run: resources that are not named here are not changed."""
    zones: tuple[ZoneBatch, ...] = ()
    ratios: NodeRatios = NodeRatios()
    annotations: Mapping[str, str | None] = {}
    """Key -> text; None: remove it. Other annotations stay."""
    devices: tuple[DeviceResources, ...] = ()
    health: NodeHealth | None = None
    """The health for the node's condition; None where colocation or the detection of abnormal nodes is disabled."""
    adaptation: AdaptiveSLOState | None = None
    """How far co-location is taken back; None where the node has never been adapted, or is not any more."""
    problems: tuple[Problem, ...] = ()
    recheck_at: datetime | None = None
    """When the passing of time alone may change the plan: the report expires unless another arrives, or the node
    becomes abnormal."""

    @property
    def zone_amounts(self) -> tuple[ExplainedAmount, ...]:
        """The batch CPU and batch memory of each zone."""
        return tuple(amount for zone in self.zones for amount in (zone.cpu, zone.memory))


def decide(snapshot: NodeSnapshot, policies: Policies, now: datetime) -> Plan:
    """The plan for one node. Never raises: errors are the plan's problems."""
    health = _health(snapshot, policies, now)
    ratios = node_ratios(snapshot.node, snapshot.topology, policies)
    problems = [Problem(plugin_names.BATCH_RESOURCE, snapshot.node.problem)] if snapshot.node.problem else []
    problems += ratios.problems
    adaptation = _adaptation(snapshot, policies, health, now)
    policies = policies.adapted(adaptation)
    degradation = _degradation(snapshot, policies, health, adaptation, now)
    amounts = _amounts(snapshot, policies) if degradation is None else _resets(degradation, snapshot.metric, policies)
    if snapshot.node.has_free and plugin_names.FREE_RESOURCE not in policies.plugins:
        amounts += tuple(reset(name, FREE_DISABLED, _FREE_IS_OFF) for name in FREE_RESOURCES)
    third_party = _third_party(snapshot.node, amounts, problems)
    return Plan(
        node=snapshot.node.name,
        amounts=tuple(_published(amount, ratios, third_party) for amount in amounts),
        zones=_zones(snapshot, policies, ratios) if degradation is None else (),
        ratios=ratios,
        annotations={
            **ratios.annotations,
            **_origin(snapshot.node, amounts, ratios),
            **_written(snapshot.node, adaptation),
        },
        devices=_devices(snapshot, policies),
        health=health,
        adaptation=adaptation,
        problems=tuple(problems),
        recheck_at=_recheck(snapshot.metric if degradation is None else None, health, adaptation, policies, now),
    )


def degradation_of(metric: MetricFacts | None, policy: CapacityPolicy, now: datetime) -> Degradation | None:
    """Why a report cannot be used; None when it can."""
    if metric is None:
        return Degradation(NO_NODE_METRIC, "the node has no NodeMetric")
    if metric.update_time is None:
        return Degradation(NEVER_REPORTED, "the agent of the node has never reported")
    if now > _expiry(metric.update_time, policy):
        return Degradation(
            METRIC_EXPIRED,
            f"the last report is of {metric.update_time:%Y-%m-%dT%H:%M:%SZ}, "
            f"more than {policy.degrade_time_minutes} minutes ago",
        )
    if not metric.has_usage:
        return Degradation(NO_READINGS, "the last report has no readings of the node")
    return None


def quantity_of(resource: str, value: int) -> Quantity:
    return Quantity.from_value(value, Format.BINARY_SI if resource.endswith("memory") else Format.DECIMAL_SI)


def _health(snapshot: NodeSnapshot, policies: Policies, now: datetime) -> NodeHealth | None:
    if not (policies.capacity.enable and policies.abnormality.enable):
        return None
    return observe(
        snapshot.health,
        snapshot.node,
        snapshot.metric,
        policies.capacity,
        now,
        policies.abnormality,
        runs_pods=bool(snapshot.pods.pods),
    )


def _adaptation(
    snapshot: NodeSnapshot, policies: Policies, health: NodeHealth | None, now: datetime
) -> AdaptiveSLOState | None:
    if policies.adaptive_slo is None:
        return None
    reasons = () if health is None else tuple([each.message for each in health.findings])
    is_known = degradation_of(snapshot.metric, policies.capacity, now) is None
    if is_known and snapshot.metric is not None:
        reasons += snapshot.metric.suffering
    before = read_state(snapshot.node.annotations)
    return policies.adaptive_slo.next_state(before, Evidence(reasons, is_known), now)


def _written(node: NodeFacts, adaptation: AdaptiveSLOState | None) -> dict[str, str | None]:
    """The annotation node.koordinator.sh/adaptive-slo. None removes it from a node that has it."""
    key = annotation_keys.ADAPTIVE_SLO
    if adaptation is not None:
        return {key: encode(adaptation).decode()}
    return {key: None} if key in node.annotations else {}


def _degradation(
    snapshot: NodeSnapshot,
    policies: Policies,
    health: NodeHealth | None,
    adaptation: AdaptiveSLOState | None,
    now: datetime,
) -> Degradation | None:
    """A node that is adapted loses all that it offers for readings that are not believed with the last step only."""
    if not policies.capacity.enable:
        return Degradation(DISABLED, "colocation is disabled for the node")
    found = degradation_of(snapshot.metric, policies.capacity, now)
    is_at_end = policies.adaptive_slo is None or policies.adaptive_slo.is_at_end(adaptation)
    if found is None and health is not None and health.distrust and is_at_end:
        return Degradation(ABNORMAL_READINGS, health.distrust)
    return found


def _expiry(update_time: datetime, policy: CapacityPolicy) -> datetime:
    return update_time + timedelta(minutes=policy.degrade_time_minutes)


def _recheck(
    metric: MetricFacts | None,
    health: NodeHealth | None,
    adaptation: AdaptiveSLOState | None,
    policies: Policies,
    now: datetime,
) -> datetime | None:
    """``metric``: the report that the plan is computed from, if any."""
    moments: list[datetime] = []
    if metric is not None and metric.update_time is not None:
        moments.append(_expiry(metric.update_time, policies.capacity) + _ONE_MOMENT)
    if health is not None:
        look = next_look(health, policies.capacity, now, policies.abnormality)
        moments += [] if look is None else [look]
    if policies.adaptive_slo is not None:
        step = policies.adaptive_slo.next_look(adaptation, now)
        moments += [] if step is None else [step]
    return min(moments, default=None)


def _amounts(snapshot: NodeSnapshot, policies: Policies) -> tuple[ExplainedAmount, ...]:
    metric = snapshot.metric
    amounts: tuple[ExplainedAmount, ...] = ()
    if metric is None:
        return amounts
    if plugin_names.MID_RESOURCE in policies.plugins and snapshot.node.has_status:
        amounts += mid_amounts(snapshot.node, snapshot.pods, metric, policies.capacity)
    has_batch = plugin_names.BATCH_RESOURCE in policies.plugins
    has_free = plugin_names.FREE_RESOURCE in policies.plugins
    if not (has_batch or has_free):
        return amounts
    policy, when = policies.capacity, metric.update_time
    inputs = node_inputs(snapshot.node, snapshot.pods, metric, policy)
    if has_batch:
        amounts += (batch_cpu(inputs, policy, when), batch_memory(inputs, policy, when))
    if has_free:
        amounts += free_amounts(inputs, snapshot.pods, metric)
    return amounts


def _resets(degradation: Degradation, metric: MetricFacts | None, policies: Policies) -> tuple[ExplainedAmount, ...]:
    when = metric.update_time if metric is not None else None
    names: tuple[str, ...] = ()
    if plugin_names.MID_RESOURCE in policies.plugins:
        names += MID_RESOURCES
    if plugin_names.BATCH_RESOURCE in policies.plugins:
        names += BATCH_RESOURCES
    if plugin_names.FREE_RESOURCE in policies.plugins:
        names += FREE_RESOURCES
    return tuple(reset(name, degradation.code, degradation.message, when) for name in names)


def _zones(snapshot: NodeSnapshot, policies: Policies, ratios: NodeRatios) -> tuple[ZoneBatch, ...]:
    topology, metric = snapshot.topology, snapshot.metric
    if topology is None or metric is None or plugin_names.BATCH_RESOURCE not in policies.plugins:
        return ()
    zones = zone_batches(snapshot.node, topology.zones, snapshot.pods.pods, metric, policies.capacity)
    return tuple(
        zone._replace(cpu=_published(zone.cpu, ratios, {}), memory=_published(zone.memory, ratios, {}))
        for zone in zones
    )


def _devices(snapshot: NodeSnapshot, policies: Policies) -> tuple[DeviceResources, ...]:
    if snapshot.device is None or not snapshot.node.has_status:
        return ()
    found: tuple[DeviceResources, ...] = ()
    if plugin_names.GPU_DEVICE_RESOURCE in policies.plugins:
        found += (snapshot.device.gpu,)
    if plugin_names.RDMA_DEVICE_RESOURCE in policies.plugins:
        found += (snapshot.device.rdma,)
    return found


def _normalized(amount: ExplainedAmount, ratios: NodeRatios) -> int:
    return normalized(amount.value, ratios.cpu_normalization) if amount.resource in _NORMALIZED else amount.value


def _published(amount: ExplainedAmount, ratios: NodeRatios, third_party: Mapping[str, int]) -> ExplainedAmount:
    """An amount with the adjustments with which it is written to the node, or to a zone of it."""
    if amount.is_reset:
        return amount
    value = _normalized(amount, ratios)
    taken = min(third_party.get(amount.resource, 0), value)
    return published(amount, (Term(NORMALIZATION, value - amount.value), Term(THIRD_PARTY, -taken)))


# Batch capacity may be shared with schedulers outside Kubernetes, such as that of Hadoop YARN. They read from one
# annotation of the node the capacity before their part was subtracted, and write their allocations into another.


class ThirdPartyAllocation(WireStruct):
    name: str = ""
    priority: str = ""
    resources: ResourceList = {}


class ThirdPartyAllocations(WireStruct):
    """The annotation node.koordinator.sh/thirdPartyAllocations."""

    allocations: list[ThirdPartyAllocation] = []


def _third_party(node: NodeFacts, amounts: Sequence[ExplainedAmount], problems: list[Problem]) -> Mapping[str, int]:
    """What third parties have allocated of batch resources that are not reset; nothing if the annotations cannot be
    decoded."""
    if not any(amount.resource in BATCH_RESOURCES and not amount.is_reset for amount in amounts):
        return {}
    try:
        taken = _third_party_batch(node.annotations)
    except DecodeError as error:
        where = f"metadata.annotations[{annotation_keys.THIRD_PARTY_ALLOCATIONS}]"
        problems.append(Problem(plugin_names.BATCH_RESOURCE, f"{where} takes nothing off: {error}"))
        return {}
    return {name: taken[name] for name in BATCH_RESOURCES if name in taken}


def _third_party_batch(annotations: Mapping[str, str]) -> dict[str, int]:
    """What third parties have allocated of each batch resource, in whole units, rounded up. Raises DecodeError."""
    text = annotations.get(annotation_keys.THIRD_PARTY_ALLOCATIONS)
    sums: dict[str, int] = {}
    if text is None:
        return sums
    for allocation in decode(text, ThirdPartyAllocations).allocations:
        if allocation.priority == PriorityClass.BATCH:
            for name, amount in allocation.resources.items():
                sums[name] = sums.get(name, 0) + amount.nanos
    # A negative allocation adds no capacity.
    return {name: max(Quantity(nanos).value, 0) for name, nanos in sums.items()}


def _origin(node: NodeFacts, amounts: Sequence[ExplainedAmount], ratios: NodeRatios) -> dict[str, str]:
    """The annotation node.koordinator.sh/originExtendedAllocatable with the batch resources before third parties' part
    is subtracted; its other content is kept, unless it cannot be decoded."""
    origin = {
        amount.resource: str(quantity_of(amount.resource, _normalized(amount, ratios)))
        for amount in amounts
        if amount.resource in BATCH_RESOURCES
    }
    if not origin:
        return {}
    key = annotation_keys.ORIGIN_EXTENDED_ALLOCATABLE
    document = _document(node.annotations.get(key))
    given = document.get("resources")
    resources: dict[str, Any] = {**(given if isinstance(given, dict) else {}), **origin}
    document["resources"] = {name: resources[name] for name in sorted(resources)}
    return {key: encode(document).decode()}


def _document(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        document = decode_any(text)
    except DecodeError:
        return {}
    return document if isinstance(document, dict) else {}
