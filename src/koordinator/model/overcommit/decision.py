"""What one node should offer, and why: a plan made from a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from koordinator.api import annotations as annotation_keys
from koordinator.model.overcommit import policies as plugin_names
from koordinator.model.overcommit.batch import BATCH_RESOURCES, batch_amounts
from koordinator.model.overcommit.batch_zones import ZoneBatch, zone_batches
from koordinator.model.overcommit.device_resources import NO_DEVICES, DeviceFacts, DeviceResources
from koordinator.model.overcommit.explained_sum import ExplainedAmount, reset
from koordinator.model.overcommit.metric_facts import MetricFacts
from koordinator.model.overcommit.mid import MID_RESOURCES, mid_amounts
from koordinator.model.overcommit.node_facts import NodeFacts
from koordinator.model.overcommit.normalization import RatioError, amplification_text, normalization_text
from koordinator.model.overcommit.pod_facts import PodFacts
from koordinator.model.overcommit.policies import CapacityPolicy, Policies
from koordinator.model.overcommit.topology_facts import TopologyFacts

# Why a node offers nothing.
DISABLED: Final = "DisabledInConfig"
NO_NODE_METRIC: Final = "NoNodeMetric"
NEVER_REPORTED: Final = "NeverReported"
METRIC_EXPIRED: Final = "MetricExpired"
NO_READINGS: Final = "NoReadings"
ABNORMAL_READINGS: Final = "AbnormalReadings"

_ONE_MOMENT: Final = timedelta(seconds=1)


class Problem(NamedTuple):
    """What a plugin could not do; the rest of the plan holds."""

    plugin: str
    text: str


class Degradation(NamedTuple):
    """Why there is no batch or mid capacity: a code and a sentence."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    node: NodeFacts
    pods: Sequence[PodFacts] = ()
    """Those that the node's name stands in."""
    metric: MetricFacts | None = None
    """None: there is no NodeMetric."""
    topology: TopologyFacts | None = None
    """None: there is no NodeResourceTopology."""
    device: DeviceFacts | None = NO_DEVICES
    """None: it is not known what devices there are, so what the node says of them stays."""
    abnormal: str = ""
    """A sentence on what makes the node's readings unfit to be trusted; empty when they are fit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write on the node and its NodeResourceTopology."""

    node: str
    amounts: tuple[ExplainedAmount, ...] = ()
    """Mid and batch resources that are in hand: of those that are not named here, nothing is touched."""
    zones: tuple[ZoneBatch, ...] = ()
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    """Key -> text; None: remove it. What is not named here stays."""
    kept_normalization: str | None = None
    """The node's annotation of what a core is worth, where the configuration of that cannot be read: batch CPU goes on
    being counted with it, since a mistake in the ConfigMap must not take capacity away from every node."""
    devices: tuple[DeviceResources, ...] = ()
    problems: tuple[Problem, ...] = ()
    recheck_at: datetime | None = None
    """When the metric will have expired unless another comes: nothing else would tell."""


def decide(snapshot: NodeSnapshot, policies: Policies, now: datetime) -> Plan:
    """The plan for one node. Never raises: what goes wrong is one of the plan's problems."""
    problems: list[Problem] = []
    if snapshot.node.problem:
        problems.append(Problem(plugin_names.BATCH_RESOURCE, snapshot.node.problem))
    annotations = _ratios(snapshot, policies, problems)
    metric, policy = snapshot.metric, policies.capacity
    degradation = _degradation(snapshot, policy, now)
    zones: tuple[ZoneBatch, ...] = ()
    if degradation is not None or metric is None:
        amounts = _resets(degradation, metric, policies)
        recheck = None
    else:
        amounts = _amounts(snapshot, metric, policies)
        if snapshot.topology is not None and plugin_names.BATCH_RESOURCE in policies.plugins:
            zones = zone_batches(snapshot.node, snapshot.topology.zones, snapshot.pods, metric, policy)
        recheck = None if metric.update_time is None else _expiry(metric.update_time, policy) + _ONE_MOMENT
    return Plan(
        node=snapshot.node.name,
        amounts=amounts,
        zones=zones,
        annotations=annotations,
        kept_normalization=_kept_normalization(snapshot.node, policies),
        devices=_devices(snapshot, policies),
        problems=tuple(problems),
        recheck_at=recheck,
    )


def degradation_of(metric: MetricFacts | None, policy: CapacityPolicy, now: datetime) -> Degradation | None:
    """Why a report cannot be computed with; None when it can."""
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


def _degradation(snapshot: NodeSnapshot, policy: CapacityPolicy, now: datetime) -> Degradation | None:
    if not policy.enable:
        return Degradation(DISABLED, "colocation is disabled for the node")
    if snapshot.abnormal:
        found = degradation_of(snapshot.metric, policy, now)
        return found or Degradation(ABNORMAL_READINGS, snapshot.abnormal)
    return degradation_of(snapshot.metric, policy, now)


def _expiry(update_time: datetime, policy: CapacityPolicy) -> datetime:
    return update_time + timedelta(minutes=policy.degrade_time_minutes)


def _amounts(snapshot: NodeSnapshot, metric: MetricFacts, policies: Policies) -> tuple[ExplainedAmount, ...]:
    amounts: tuple[ExplainedAmount, ...] = ()
    if plugin_names.MID_RESOURCE in policies.plugins and snapshot.node.has_status:
        amounts += mid_amounts(snapshot.node, snapshot.pods, metric, policies.capacity)
    if plugin_names.BATCH_RESOURCE in policies.plugins:
        amounts += batch_amounts(snapshot.node, snapshot.pods, metric, policies.capacity)
    return amounts


def _resets(
    degradation: Degradation | None, metric: MetricFacts | None, policies: Policies
) -> tuple[ExplainedAmount, ...]:
    code, message = degradation or Degradation(NO_NODE_METRIC, "the node has no NodeMetric")
    when = metric.update_time if metric is not None else None
    names: tuple[str, ...] = ()
    if plugin_names.MID_RESOURCE in policies.plugins:
        names += MID_RESOURCES
    if plugin_names.BATCH_RESOURCE in policies.plugins:
        names += BATCH_RESOURCES
    return tuple(reset(name, code, message, when) for name in names)


def _ratios(snapshot: NodeSnapshot, policies: Policies, problems: list[Problem]) -> dict[str, str | None]:
    """The annotations that say ratios. Without colocation nothing is stretched any more, and what a core is worth
    stays."""
    annotations: dict[str, str | None] = {}
    if not policies.capacity.enable:
        if plugin_names.RESOURCE_AMPLIFICATION in policies.plugins:
            annotations[annotation_keys.RESOURCE_AMPLIFICATION_RATIO] = None
        return annotations
    normalization = snapshot.node.annotations.get(annotation_keys.CPU_NORMALIZATION_RATIO)
    if policies.normalization is not None and plugin_names.CPU_NORMALIZATION in policies.plugins:
        try:
            normalization = normalization_text(snapshot.node, snapshot.topology, policies.normalization)
            annotations[annotation_keys.CPU_NORMALIZATION_RATIO] = normalization
        except RatioError as error:
            problems.append(Problem(plugin_names.CPU_NORMALIZATION, str(error)))
    if policies.amplification is not None and plugin_names.RESOURCE_AMPLIFICATION in policies.plugins:
        try:
            text = amplification_text(policies.amplification, normalization)
            annotations[annotation_keys.RESOURCE_AMPLIFICATION_RATIO] = text
        except RatioError as error:
            problems.append(Problem(plugin_names.RESOURCE_AMPLIFICATION, str(error)))
    return annotations


def _kept_normalization(node: NodeFacts, policies: Policies) -> str | None:
    if policies.normalization is not None or plugin_names.CPU_NORMALIZATION not in policies.plugins:
        return None
    return node.annotations.get(annotation_keys.CPU_NORMALIZATION_RATIO)


def _devices(snapshot: NodeSnapshot, policies: Policies) -> tuple[DeviceResources, ...]:
    if snapshot.device is None or not snapshot.node.has_status:
        return ()
    found: tuple[DeviceResources, ...] = ()
    if plugin_names.GPU_DEVICE_RESOURCE in policies.plugins:
        found += (snapshot.device.gpu,)
    if plugin_names.RDMA_DEVICE_RESOURCE in policies.plugins:
        found += (snapshot.device.rdma,)
    return found
