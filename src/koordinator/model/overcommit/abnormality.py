"""Detects nodes whose metrics cannot be trusted, and computes the node condition for that.

A node is abnormal when its agent is missing, when its reports stop, or when they contradict themselves: usage above
capacity or below zero for minutes, the same readings for half an hour, an impossible time. It stays abnormal until
reports have been sound for a while, so that a node at the edge of a limit does not flap.

Missing reports count only where one was due: not on a node that is not Ready or has become Ready only just now, and not
before this process has watched for a while itself. Where nothing can be detected, the last findings stay. The state of
a node has a fixed size, and is restored from the condition of the node and from reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from koordinator.api.node import Node, NodeCondition
from koordinator.api.timestamps import format_time
from koordinator.model.overcommit.amounts import Amounts
from koordinator.model.overcommit.facts import MetricFacts, NodeFacts
from koordinator.model.overcommit.policies import CapacityPolicy
from koordinator.model.slo_configuration.abnormality_limits import DEFAULT_LIMITS, AbnormalityLimits

AGENT_MISSING: Final = "AgentMissing"
METRICS_STOPPED: Final = "MetricsStopped"
REPORT_FROM_THE_PAST: Final = "ReportFromThePast"
REPORT_FROM_THE_FUTURE: Final = "ReportFromTheFuture"
FROZEN_READINGS: Final = "FrozenReadings"
USAGE_ABOVE_CAPACITY: Final = "UsageAboveCapacity"
NEGATIVE_USAGE: Final = "NegativeUsage"
CONTRADICTIONS: Final = frozenset({REPORT_FROM_THE_FUTURE, FROZEN_READINGS, USAGE_ABOVE_CAPACITY, NEGATIVE_USAGE})
"""Findings in reports that arrive, whose readings must not be used."""
REASONS: Final = (AGENT_MISSING, METRICS_STOPPED, REPORT_FROM_THE_PAST, *sorted(CONTRADICTIONS))

_JUST_AFTER: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
CONDITION_TYPE: Final = "ColocationAbnormal"
SOUND: Final = "ReadingsAreSound"
NOT_CHECKED: Final = "NotChecked"
_SOUND_MESSAGE: Final = "the node's agent reports, and what it reports makes sense"
_NOT_CHECKED_MESSAGE: Final = "colocation, or the search for abnormal nodes, is disabled for the node"


class Finding(NamedTuple):
    code: str
    message: str


class NodeHealth(Struct, frozen=True):
    """The state of a node between two observations. Report times are by the node's clock, all others by ours."""

    first_seen: datetime
    changed_at: datetime
    """Since when the node has been abnormal, or normal."""
    findings: tuple[Finding, ...] = ()
    """The reasons why the node is abnormal; empty while it is normal."""
    well_since: datetime | None = None
    """Since when there has been no finding in an abnormal node."""
    expected_since: datetime | None = None
    """Since when a report could have been expected; None: since the node was first seen."""
    heard_at: datetime | None = None
    """When the last report arrived."""
    report_time: datetime | None = None
    """The time in the present report."""
    is_late: bool = False
    """Whether that report had expired when it arrived, and another report was seen before."""
    fingerprint: int = 0
    same_since: datetime | None = None
    """The time of the first of the reports that are equal to the last one."""
    same_reports: int = 0
    moved_at: datetime | None = None
    """The time of the last report that was seen to differ from the one before it."""
    above_since: datetime | None = None
    negative_since: datetime | None = None

    @property
    def is_abnormal(self) -> bool:
        return bool(self.findings)

    @property
    def distrust(self) -> str:
        """Why the readings of arriving reports must not be used; empty if they may be."""
        return "; ".join(finding.message for finding in self.findings if finding.code in CONTRADICTIONS)

    def has(self, code: str) -> bool:
        return any(finding.code == code for finding in self.findings)


def observe(
    before: NodeHealth | None,
    node: NodeFacts,
    metric: MetricFacts | None,
    policy: CapacityPolicy,
    now: datetime,
    limits: AbnormalityLimits = DEFAULT_LIMITS,
    *,
    runs_pods: bool = True,
) -> NodeHealth:
    """The state of a node after one more observation, with or without a new report. ``runs_pods``: whether there are
    pods on the node; without, readings need not change."""
    if before is None:
        before = NodeHealth(first_seen=now, changed_at=now)
    after = _with_report(_with_expectation(before, node, now), node, metric, policy, now, limits)
    found = _silence(after, node, policy, now, limits)
    if found is None:
        found = tuple(_contradictions(after, now, limits, runs_pods))
    return _evaluated(after, found, now, limits)


def next_look(
    health: NodeHealth, policy: CapacityPolicy, now: datetime, limits: AbnormalityLimits = DEFAULT_LIMITS
) -> datetime | None:
    """When the passing of time alone may change the result next, if no report arrives before."""
    expected, expiry = health.expected_since or health.first_seen, timedelta(minutes=policy.degrade_time_minutes)
    moments = [expected + limits.missing_after]
    if health.report_time is not None:
        moments.append(health.report_time + expiry)
    if health.heard_at is not None:
        if health.report_time is None:
            moments.append(health.heard_at + limits.missing_after)
        elif health.is_late:
            moments.append(health.heard_at + expiry)
    return min((moment + _JUST_AFTER for moment in moments if moment + _JUST_AFTER > now), default=None)


def _with_expectation(health: NodeHealth, node: NodeFacts, now: datetime) -> NodeHealth:
    since = health.first_seen
    if node.ready_since is not None and since < node.ready_since <= now:
        since = node.ready_since
    return health if health.expected_since == since else replace(health, expected_since=since)


def _with_report(
    health: NodeHealth,
    node: NodeFacts,
    metric: MetricFacts | None,
    policy: CapacityPolicy,
    now: datetime,
    limits: AbnormalityLimits,
) -> NodeHealth:
    """The state with a report that has not been seen yet, or without a report."""
    time = metric.update_time if metric is not None else None
    if time == health.report_time:
        return health
    if metric is None or time is None:
        return replace(health, report_time=None, is_late=False, same_reports=0, same_since=None, moved_at=None)
    is_first = health.same_reports == 0
    is_same = not is_first and metric.fingerprint == health.fingerprint
    is_above = metric.node_usage is not None and _is_above(metric.node_usage, node.capacity, limits)
    return replace(
        health,
        heard_at=now,
        report_time=time,
        is_late=not is_first and _is_expired(time, policy, now),
        fingerprint=metric.fingerprint,
        same_since=_earlier(health.same_since, time) if is_same else time,
        same_reports=health.same_reports + 1 if is_same else 1,
        moved_at=health.moved_at if is_first or is_same else time,
        above_since=_earlier(health.above_since, time) if is_above else None,
        negative_since=_earlier(health.negative_since, time) if metric.has_negative else None,
    )


def _earlier(since: datetime | None, time: datetime) -> datetime:
    """A clock may have been set back."""
    return time if since is None else min(since, time)


def _is_above(usage: Amounts, capacity: Amounts, limits: AbnormalityLimits) -> bool:
    """A node whose capacity has not been written yet is not checked against it."""
    return any(
        most > 0 and used * 100 > most * (100 + limits.tolerated_percent)
        for used, most in zip(usage, capacity, strict=True)
    )


def _is_expired(time: datetime, policy: CapacityPolicy, now: datetime) -> bool:
    return now > time + timedelta(minutes=policy.degrade_time_minutes)


def _silence(
    health: NodeHealth, node: NodeFacts, policy: CapacityPolicy, now: datetime, limits: AbnormalityLimits
) -> tuple[Finding, ...] | None:
    """The findings if there is no recent report; None if there is one."""
    time, heard, expected = health.report_time, health.heard_at, health.expected_since or health.first_seen
    if time is not None and not _is_expired(time, policy, now):
        return None
    awaited = expected if time is not None or heard is None else max(expected, heard)
    if not node.is_ready or now - awaited < limits.missing_after:
        return health.findings
    if time is None:
        return (Finding(AGENT_MISSING, "no agent reports from the node: is koordlet running there?"),)
    expiry = timedelta(minutes=policy.degrade_time_minutes)
    if health.is_late and heard is not None and now <= heard + expiry:
        text = f"reports arrive, but bear a time of more than {_span(expiry)} ago: the node's clock is wrong"
        return (Finding(REPORT_FROM_THE_PAST, text),)
    return (Finding(METRICS_STOPPED, f"the last report of the node's agent is more than {_span(expiry)} old"),)


def _contradictions(health: NodeHealth, now: datetime, limits: AbnormalityLimits, runs_pods: bool) -> Iterator[Finding]:
    """The findings in a recent report. The condition names the first as reason, so the one comes first that takes
    longest to be detected again after a restart of this process."""
    time = health.report_time
    if time is None:
        return
    if _is_frozen(health, time, limits, runs_pods):
        yield Finding(FROZEN_READINGS, f"all readings have been the same for {_span(limits.frozen_after)} and more")
    if time > now + limits.clock_difference:
        yield Finding(REPORT_FROM_THE_FUTURE, "reports bear a time that has not come yet: the node's clock is wrong")
    lasting = f", for {_span(limits.raise_after)} and more"
    if _lasts(health, USAGE_ABOVE_CAPACITY, health.above_since, time, limits):
        yield Finding(USAGE_ABOVE_CAPACITY, f"the node is said to use more than it has{lasting}")
    if _lasts(health, NEGATIVE_USAGE, health.negative_since, time, limits):
        yield Finding(NEGATIVE_USAGE, f"some usage is said to be below zero{lasting}")


def _lasts(health: NodeHealth, code: str, since: datetime | None, time: datetime, limits: AbnormalityLimits) -> bool:
    """A finding of before is found again in each further report."""
    return since is not None and (health.has(code) or time - since >= limits.raise_after)


def _is_frozen(health: NodeHealth, time: datetime, limits: AbnormalityLimits, runs_pods: bool) -> bool:
    """Readings that have been found frozen stay so until they change again, whichever process found them."""
    if health.has(FROZEN_READINGS):
        return health.moved_at is None or time - health.moved_at >= limits.clear_after
    return (
        runs_pods
        and health.same_since is not None
        and health.same_reports >= limits.frozen_reports
        and time - health.same_since >= limits.frozen_after
    )


def _span(time: timedelta) -> str:
    minutes, rest = divmod(time, _MINUTE)
    return f"{int(time.total_seconds())} seconds" if rest else f"{minutes} minute{'' if minutes == 1 else 's'}"


def _evaluated(health: NodeHealth, found: tuple[Finding, ...], now: datetime, limits: AbnormalityLimits) -> NodeHealth:
    """Whether the node is abnormal, given the present findings and those of before."""
    if found:
        since = health.changed_at if health.findings else now
        return _replaced(health, found, since, None)
    if not health.findings:
        return health
    if health.above_since is not None or health.negative_since is not None:
        # The last report is wrong again, though not for long enough for a new finding.
        return _replaced(health, health.findings, health.changed_at, None)
    well_since = health.well_since or now
    if health.heard_at is not None and health.heard_at - well_since >= limits.clear_after:
        return _replaced(health, (), now, None)
    return _replaced(health, health.findings, health.changed_at, well_since)


def _replaced(
    health: NodeHealth, findings: tuple[Finding, ...], changed_at: datetime, well_since: datetime | None
) -> NodeHealth:
    if (findings, changed_at, well_since) == (health.findings, health.changed_at, health.well_since):
        return health
    return replace(health, findings=findings, changed_at=changed_at, well_since=well_since)


class ConditionChange(Struct, frozen=True):
    """A change of the condition to write, with its meaning."""

    patch: dict[str, Any]
    """A strategic merge patch for the node's status."""
    before: str
    """The reason for which the node was abnormal; empty when it was normal."""
    after: str
    """The reason from now on."""
    message: str


def condition_of(health: NodeHealth | None, now: datetime) -> NodeCondition:
    """The condition with the time of its last change. ``health`` is None if the node is not checked."""
    if health is None:
        return NodeCondition(CONDITION_TYPE, "False", NOT_CHECKED, _NOT_CHECKED_MESSAGE, last_transition_time=now)
    first = health.findings[0] if health.findings else None
    return NodeCondition(
        type=CONDITION_TYPE,
        status="True" if first else "False",
        reason=first.code if first else SOUND,
        message="; ".join(each.message for each in health.findings) if first else _SOUND_MESSAGE,
        last_transition_time=health.changed_at,
    )


def remembered(node: Node, now: datetime) -> NodeHealth:
    """The initial state of a node in a new process: an abnormal one stays so until it has been well again."""
    stored = _stored(node)
    if stored is None:
        return NodeHealth(first_seen=now, changed_at=now)
    return NodeHealth(
        first_seen=now,
        changed_at=stored.last_transition_time or now,
        findings=(Finding(stored.reason, stored.message),) if _is_true(stored) else (),
    )


def condition_change(node: Node, health: NodeHealth | None, now: datetime) -> ConditionChange | None:
    """The change of the condition; None when the node has it already.

    A node that has always been well gets no condition, and the condition of one that is normal and not checked any more
    stays.
    """
    wanted = condition_of(health, now)
    stored = _stored(node)
    was_abnormal = stored is not None and _is_true(stored)
    if not was_abnormal and (stored is None or health is None) and not _is_true(wanted):
        return None
    if stored is not None and _content(stored) == _content(wanted):
        return None
    is_turned = stored is None or stored.status != wanted.status
    since = wanted.last_transition_time or now
    if stored is not None and not is_turned:
        since = stored.last_transition_time or since
    condition = {
        "type": wanted.type,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastHeartbeatTime": format_time(now),
        "lastTransitionTime": format_time(since),
    }
    return ConditionChange(
        patch={"status": {"conditions": [condition]}},
        before=stored.reason if stored is not None and was_abnormal else "",
        after=wanted.reason if _is_true(wanted) else "",
        message=wanted.message,
    )


def _stored(node: Node) -> NodeCondition | None:
    return next((each for each in node.status.conditions if each.type == CONDITION_TYPE), None)


def _is_true(condition: NodeCondition) -> bool:
    return condition.status == "True"


def _content(condition: NodeCondition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message
