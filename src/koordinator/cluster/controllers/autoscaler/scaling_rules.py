"""How fast, how far and how soon an autoscaler may change the number of replicas; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from koordinator.cluster.controllers.autoscaler.types import AutoscalerBehavior, AutoscalerSpec, ScalingRules

DOWNSCALE_STABILIZATION: Final = 300
"""Seconds; unless the behavior says otherwise."""
_UP_FACTOR, _UP_LEAST = 2, 4
"""Without a behavior, one step leads to twice as many replicas, or to four."""
_WITHIN: Final = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_FEW: Final = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_TOO_MANY: Final = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_TOO_FAST_UP: Final = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
)
_TOO_FAST_DOWN: Final = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
)
_READY: Final = ("ReadyForNewScale", "recommended size matches current size")
_STABILIZED_UP: Final = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_STABILIZED_DOWN: Final = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
Reason = tuple[str, str]
"""Of a condition: the reason and the message."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A number of replicas, or a change of it, at a time."""

    at: datetime
    replicas: int


@dataclass(frozen=True, slots=True)
class History:
    """What an autoscaler remembers; kept in memory alone, as in Kubernetes."""

    recommended: tuple[Moment, ...] = ()
    added: tuple[Moment, ...] = ()
    removed: tuple[Moment, ...] = ()

    def rescaled(self, behavior: AutoscalerBehavior | None, before: int, after: int, now: datetime) -> History:
        if behavior is None:
            return self
        rules = behavior.scale_up if after > before else behavior.scale_down
        longest = max((policy.period_seconds for policy in rules.policies), default=0)
        made = Moment(now, abs(after - before))
        if after > before:
            return replace(self, added=(*_since(self.added, longest, now), made))
        return replace(self, removed=(*_since(self.removed, longest, now), made))


@dataclass(frozen=True, slots=True)
class Normalized:
    """What becomes of a recommendation."""

    replicas: int
    able: Reason
    """Of the condition AbleToScale."""
    limited: Reason
    """Of the condition ScalingLimited."""
    is_limited: bool
    history: History


def normalize(spec: AutoscalerSpec, current: int, desired: int, history: History, now: datetime) -> Normalized:
    behavior = spec.behavior
    if behavior is None:
        windows = (0, DOWNSCALE_STABILIZATION)
        stable = max([desired, *_within(history.recommended, windows[1], now)])
        replicas, limited = _limited_by_default(spec, current, stable)
    else:
        windows = _windows(behavior)
        stable = _stabilized(current, desired, windows, history, now)
        replicas, limited = _limited(spec, behavior, current, stable, history, now)
    reason = _STABILIZED_UP if behavior is not None and desired >= current else _STABILIZED_DOWN
    kept = (*_since(history.recommended, max(windows), now), Moment(now, desired))
    return Normalized(
        replicas,
        able=_READY if stable == desired else reason,
        limited=limited,
        is_limited=replicas != stable,
        history=replace(history, recommended=kept),
    )


def _windows(behavior: AutoscalerBehavior) -> tuple[int, int]:
    up, down = (each.stabilization_window_seconds for each in (behavior.scale_up, behavior.scale_down))
    return up or 0, DOWNSCALE_STABILIZATION if down is None else down


def _stabilized(current: int, desired: int, windows: tuple[int, int], history: History, now: datetime) -> int:
    """The present number, unless all recommendations of the window go beyond it in the same direction."""
    lowest = min([desired, *_within(history.recommended, windows[0], now)])
    highest = max([desired, *_within(history.recommended, windows[1], now)])
    return min(max(current, lowest), highest)


def _limited_by_default(spec: AutoscalerSpec, current: int, desired: int) -> tuple[int, Reason]:
    fastest = max(_UP_FACTOR * current, _UP_LEAST)
    most, reason = (fastest, _TOO_FAST_UP) if spec.max_replicas > fastest else (spec.max_replicas, _TOO_MANY)
    if desired < spec.least:
        return spec.least, _TOO_FEW
    return (most, reason) if desired > most else (desired, _WITHIN)


def _limited(
    spec: AutoscalerSpec, behavior: AutoscalerBehavior, current: int, desired: int, history: History, now: datetime
) -> tuple[int, Reason]:
    if desired > current:
        fastest = max(current, _fastest_up(behavior.scale_up, current, history, now))
        most, reason = (fastest, _TOO_FAST_UP) if spec.max_replicas > fastest else (spec.max_replicas, _TOO_MANY)
        if desired > most:
            return most, reason
    elif desired < current:
        fastest = min(current, _fastest_down(behavior.scale_down, current, history, now))
        least, reason = (fastest, _TOO_FAST_DOWN) if spec.least < fastest else (spec.least, _TOO_FEW)
        if desired < least:
            return least, reason
    return desired, _WITHIN


def _fastest_up(rules: ScalingRules, current: int, history: History, now: datetime) -> int:
    """The highest number that the policies allow now."""
    if rules.select_policy == "Disabled" or not rules.policies:
        return current
    allowed = []
    for policy in rules.policies:
        start = _at_start(current, policy.period_seconds, history, now)
        # Rounded up, since one replica would else never become more.
        is_number = policy.type == "Pods"
        allowed.append(start + policy.value if is_number else math.ceil(start * (1 + policy.value / 100)))
    return min(allowed) if rules.select_policy == "Min" else max(allowed)


def _fastest_down(rules: ScalingRules, current: int, history: History, now: datetime) -> int:
    """The lowest number that the policies allow now."""
    if rules.select_policy == "Disabled" or not rules.policies:
        return current
    allowed = []
    for policy in rules.policies:
        start = _at_start(current, policy.period_seconds, history, now)
        allowed.append(start - policy.value if policy.type == "Pods" else int(start * (1 - policy.value / 100)))
    return max(allowed) if rules.select_policy == "Min" else min(allowed)


def _at_start(current: int, period: int, history: History, now: datetime) -> int:
    """How many replicas there were at the start of the period."""
    return current - sum(_within(history.added, period, now)) + sum(_within(history.removed, period, now))


def _since(moments: Sequence[Moment], seconds: int, now: datetime) -> tuple[Moment, ...]:
    limit = now - timedelta(seconds=seconds)
    return tuple(each for each in moments if each.at > limit)


def _within(moments: Sequence[Moment], seconds: int, now: datetime) -> list[int]:
    return [each.replicas for each in _since(moments, seconds, now)]
