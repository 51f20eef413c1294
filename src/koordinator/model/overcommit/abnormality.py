"""Nodes that cannot be trusted with batch capacity, found from one report after another.

A node is abnormal when its agent is missing, when its reports stop, or when they contradict themselves: usage above
capacity or below zero for minutes, the same readings for half an hour, a time that has not come yet. It stays abnormal
until all has been well for a while, so that a node at the edge of a limit does not go back and forth. What is kept of
a node between two looks has a fixed size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from koordinator.model.overcommit.amounts import Amounts
from koordinator.model.overcommit.metric_facts import MetricFacts
from koordinator.model.overcommit.node_facts import NodeFacts
from koordinator.model.overcommit.policies import CapacityPolicy

AGENT_MISSING: Final = "AgentMissing"
METRICS_STOPPED: Final = "MetricsStopped"
USAGE_ABOVE_CAPACITY: Final = "UsageAboveCapacity"
NEGATIVE_USAGE: Final = "NegativeUsage"
FROZEN_READINGS: Final = "FrozenReadings"
REPORT_FROM_THE_FUTURE: Final = "ReportFromTheFuture"
CONTRADICTIONS: Final = frozenset({USAGE_ABOVE_CAPACITY, NEGATIVE_USAGE, FROZEN_READINGS, REPORT_FROM_THE_FUTURE})
"""Those with which readings arrive, and are not to be computed with."""


class Finding(NamedTuple):
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class AbnormalityLimits:
    missing_after: timedelta = timedelta(minutes=5)
    """How long a node that nobody has heard of before may be without a report."""
    raise_after: timedelta = timedelta(minutes=5)
    """How long usage may be above capacity or below zero, from report to report."""
    clear_after: timedelta = timedelta(minutes=5)
    """How long all must have been well before a node is normal again."""
    frozen_after: timedelta = timedelta(minutes=30)
    frozen_reports: int = 10
    """How many equal reports in a row, at least, over that time."""
    clock_difference: timedelta = timedelta(minutes=5)
    """By how much a node's clock may be ahead."""
    tolerated_percent: int = 5
    """By how much usage may be above capacity, since both are measured."""


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """What is kept of a node between two looks."""

    first_seen: datetime
    changed_at: datetime
    """Since when the node has been abnormal, or normal."""
    findings: tuple[Finding, ...] = ()
    """What makes the node abnormal; empty while it is normal."""
    well_since: datetime | None = None
    """Since when nothing has been found any more in an abnormal node."""
    report_time: datetime | None = None
    fingerprint: int = 0
    same_since: datetime | None = None
    """The time of the first of the reports that are equal to the last one."""
    same_reports: int = 0
    above_since: datetime | None = None
    negative_since: datetime | None = None

    @property
    def is_abnormal(self) -> bool:
        return bool(self.findings)

    @property
    def distrust(self) -> str:
        """Why readings that arrive are not to be computed with; empty when they may be."""
        return "; ".join(finding.message for finding in self.findings if finding.code in CONTRADICTIONS)


def observe(
    before: NodeHealth | None,
    node: NodeFacts,
    metric: MetricFacts | None,
    policy: CapacityPolicy,
    now: datetime,
    limits: AbnormalityLimits = AbnormalityLimits(),
) -> NodeHealth:
    """What is known of a node after one more look at it, with or without a new report."""
    if before is None:
        before = NodeHealth(first_seen=now, changed_at=now)
    after = _with_report(before, node, metric, limits)
    return _judged(after, _findings(after, metric, policy, now, limits), now, limits)


def next_look(
    health: NodeHealth,
    policy: CapacityPolicy,
    limits: AbnormalityLimits = AbnormalityLimits(),
) -> datetime:
    """When time alone may change the answer, should no report come before."""
    if health.report_time is None:
        silent_at = health.first_seen + limits.missing_after
    else:
        silent_at = health.report_time + timedelta(minutes=policy.degrade_time_minutes)
    if health.well_since is None:
        return silent_at
    return min(silent_at, health.well_since + limits.clear_after)


def _with_report(
    health: NodeHealth, node: NodeFacts, metric: MetricFacts | None, limits: AbnormalityLimits
) -> NodeHealth:
    """The same node with a report that has not been seen yet."""
    time = metric.update_time if metric is not None else None
    if metric is None or time is None or time == health.report_time:
        return health
    is_same = health.report_time is not None and metric.fingerprint == health.fingerprint
    is_above = metric.node_usage is not None and _is_above(metric.node_usage, node.capacity, limits)
    return NodeHealth(
        first_seen=health.first_seen,
        changed_at=health.changed_at,
        findings=health.findings,
        well_since=health.well_since,
        report_time=time,
        fingerprint=metric.fingerprint,
        same_since=health.same_since if is_same else time,
        same_reports=health.same_reports + 1 if is_same else 1,
        above_since=(health.above_since or time) if is_above else None,
        negative_since=(health.negative_since or time) if metric.has_negative else None,
    )


def _is_above(usage: Amounts, capacity: Amounts, limits: AbnormalityLimits) -> bool:
    """A node whose capacity nobody has written yet is not judged by it."""
    return any(
        most > 0 and used * 100 > most * (100 + limits.tolerated_percent)
        for used, most in zip(usage, capacity, strict=True)
    )


def _findings(
    health: NodeHealth,
    metric: MetricFacts | None,
    policy: CapacityPolicy,
    now: datetime,
    limits: AbnormalityLimits,
) -> tuple[Finding, ...]:
    """What is wrong at this moment."""
    time = metric.update_time if metric is not None else None
    if time is None:
        if now - health.first_seen < limits.missing_after:
            return ()
        return (Finding(AGENT_MISSING, "no agent reports from the node: is koordlet running there?"),)
    if now > time + timedelta(minutes=policy.degrade_time_minutes):
        text = f"the last report of the node's agent is more than {policy.degrade_time_minutes} minutes old"
        return (Finding(METRICS_STOPPED, text),)
    return tuple(_contradictions(health, time, now, limits))


def _contradictions(health: NodeHealth, time: datetime, now: datetime, limits: AbnormalityLimits) -> Iterator[Finding]:
    if time > now + limits.clock_difference:
        yield Finding(REPORT_FROM_THE_FUTURE, "reports bear a time that has not come yet: the node's clock is wrong")
    if health.above_since is not None and time - health.above_since >= limits.raise_after:
        yield Finding(USAGE_ABOVE_CAPACITY, f"the node is said to use more than it has{_for(limits)}")
    if health.negative_since is not None and time - health.negative_since >= limits.raise_after:
        yield Finding(NEGATIVE_USAGE, f"some usage is said to be below zero{_for(limits)}")
    if _is_frozen(health, time, limits):
        minutes = limits.frozen_after // timedelta(minutes=1)
        yield Finding(FROZEN_READINGS, f"all readings have been the same for {minutes} minutes and more")


def _is_frozen(health: NodeHealth, time: datetime, limits: AbnormalityLimits) -> bool:
    return (
        health.same_since is not None
        and health.same_reports >= limits.frozen_reports
        and time - health.same_since >= limits.frozen_after
    )


def _for(limits: AbnormalityLimits) -> str:
    return f", for {limits.raise_after // timedelta(minutes=1)} minutes and more"


def _judged(health: NodeHealth, found: tuple[Finding, ...], now: datetime, limits: AbnormalityLimits) -> NodeHealth:
    """Whether the node is abnormal, given what is wrong now and what was wrong before."""
    if found:
        since = health.changed_at if health.findings else now
        return _replaced(health, found, since, None)
    if not health.findings:
        return health
    if health.above_since is not None or health.negative_since is not None:
        # The last report is wrong again, though not for long enough to be found by itself.
        return _replaced(health, health.findings, health.changed_at, None)
    well_since = health.well_since or now
    if now - well_since >= limits.clear_after:
        return _replaced(health, (), now, None)
    return _replaced(health, health.findings, health.changed_at, well_since)


def _replaced(
    health: NodeHealth, findings: tuple[Finding, ...], changed_at: datetime, well_since: datetime | None
) -> NodeHealth:
    if (findings, changed_at, well_since) == (health.findings, health.changed_at, health.well_since):
        return health
    return replace(health, findings=findings, changed_at=changed_at, well_since=well_since)
