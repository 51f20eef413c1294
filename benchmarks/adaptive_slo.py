"""A simulated week: nodes with fixed suppress thresholds, and nodes that adapt theirs, with the same pods.

usage: python -m benchmarks.adaptive_slo [--nodes 12] [--days 7] [--seed 1] [--svg FILE]

Online load has the shape of published traces: it is high by day and low by night, lower at the weekend, with noise and
short bursts. Nodes differ in how much their online pods feel of their neighbours, and some are slower for a while, as a
machine that is too hot. Batch pods fill what koord-manager lends and koordlet's CPU suppress leaves. koordlet's own
detection reads the CPU pressure of the online pods every ten seconds, and koord-manager's own decision adapts a node.

violations   share of ten-second rounds in which online pods waited for a CPU for more than a tenth of the time
batch        CPU hours of batch pods
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.line_chart import Chart, Series, write_svg
from koordinator.api.adaptive_slo import AdaptiveSLOState
from koordinator.api.qos import QoSClass
from koordinator.koordlet.observe.interference.detection import Indicator, InterferenceDetector, PodReading
from koordinator.model.slo_adaptation import AdaptiveSLO, Evidence
from koordinator.model.slo_configuration.configuration_keys import ADAPTIVE_SLO as KEY

Floats = NDArray[np.float64]

_CORES: Final = 32.0
_SYSTEM: Final = 1.0
_LEAST: Final = 0.02
"""Of a node's CPUs: what CPU suppress leaves to batch pods however busy it is."""
_DEMAND: Final = 0.22
"""What all batch pods that wait or run request, as a share of all CPUs."""
_ROUNDS: Final = 6
"""In a minute: the agent reads every ten seconds."""
_DAY: Final = 24 * 60
_LIFE: Final = 30.0
"""Minutes that a batch pod runs, on average."""
_KNEE: Final = 0.80
"""From about which use of its CPUs on a node is felt to be full, where its online pods are not sensitive."""
_VIOLATED: Final = 10.0
"""Percent of the time."""
_START: Final = datetime(2026, 5, 4, tzinfo=UTC)
FIXED: Final = (40, 45, 50, 55, 60, 65, 70, 75, 80)
ADAPTED: Final = (60, 65, 70, 75, 80)
"""Suppress thresholds in percent; so much is lent, too."""
_SHOWN: Final = 65
_SHOWN_DAYS: Final = 3


@dataclass(frozen=True, slots=True)
class Week:
    """What happens to the nodes, whatever the policy: (nodes, minutes, rounds)."""

    online: Floats
    """Cores of online pods."""
    speed: Floats
    """Of a node, (nodes, minutes): 1 unless something slows it down."""
    sensitivity: Floats
    """By node: how much earlier than at the knee its online pods feel that it is full."""
    noise: Floats
    """In the pressure, in percent of the time."""


def make_week(nodes: int, days: float, seed: int) -> Week:
    random = np.random.default_rng(seed)
    minutes = np.arange(round(days * _DAY))
    day = minutes / _DAY
    wave = 0.5 - 0.5 * np.cos(2 * np.pi * (day[None, :] + random.uniform(-0.08, 0.08, (nodes, 1)) - 0.12))
    weekend = np.where(day % 7 >= 5, 0.7, 1.0)
    low, high = random.uniform(0.10, 0.18, (nodes, 1)), random.uniform(0.30, 0.48, (nodes, 1))
    share = low + (high - low) * wave**1.3 * weekend
    for node in range(nodes):
        for start in random.integers(0, minutes.size, round(6 * days)):
            share[node, start : start + random.integers(5, 20)] *= random.uniform(1.15, 1.5)
    jitter = random.normal(1.0, 0.06, (nodes, minutes.size, _ROUNDS))
    speed = np.ones((nodes, minutes.size))
    for node in random.choice(nodes, max(nodes // 6, 1), replace=False):
        start = int(random.uniform(0.2, 0.6) * minutes.size)
        speed[node, start : start + int(0.15 * minutes.size)] = 0.75
    return Week(
        online=np.clip(share[:, :, None] * jitter, 0.01, 0.95) * _CORES,
        speed=speed,
        sensitivity=np.where(random.uniform(size=nodes) < 0.4, random.uniform(1.15, 1.45, nodes), 1.0),
        noise=random.gamma(2.0, 1.0, (nodes, minutes.size, _ROUNDS)),
    )


class Adapted:
    """One node with its agent's detection and its level."""

    def __init__(self, adaptive: AdaptiveSLO) -> None:
        self._adaptive = adaptive
        self._detector = InterferenceDetector()
        self._state: AdaptiveSLOState | None = None

    @property
    def level(self) -> int:
        return 0 if self._state is None else self._state.level

    def observe(self, minute: int, online: Floats, batch: Floats, pressure: Floats) -> AdaptiveSLOState | None:
        """What the agent reports after a minute, and what comes of it."""
        now = _START + timedelta(minutes=minute)
        findings: Sequence[Any] = ()
        for number in range(_ROUNDS):
            readings = [
                PodReading(
                    "web", "a/web", "web", QoSClass.LS, online[number], indicators={Indicator.CPU: pressure[number]}
                ),
                PodReading("job", "a/job", "job", QoSClass.BE, batch[number]),
            ]
            findings = self._detector.observe(readings, now + timedelta(seconds=10 * number))
        reasons = tuple(f"{each.indicator} of pod {each.name}" for each in findings)
        self._state = self._adaptive.next_state(self._state, Evidence(reasons), now + timedelta(minutes=1))
        return self._state


@dataclass(slots=True)
class Outcome:
    """Of one policy; the lists are of the node that suffers most, minute by minute."""

    threshold: int
    adapts: bool
    violations: float = 0.0
    batch: float = 0.0
    steps: int = 0
    thresholds: dict[int, list[int]] = field(default_factory=dict)


def played(week: Week, policy: tuple[int, bool]) -> Outcome:
    """The week with one configured threshold, adapted or fixed."""
    configured, adapts = policy
    adaptive = AdaptiveSLO.of(msgspec.structs.replace(KEY.defaults, enable=True))
    assert adaptive is not None
    nodes, minutes, _ = week.online.shape
    adapted = [Adapted(adaptive) for _ in range(nodes)] if adapts else []
    threshold = np.full(nodes, configured, dtype=np.float64)
    reclaim, weight, placed, violated, used_total = threshold.copy(), np.ones(nodes), np.zeros(nodes), 0, 0.0
    outcome = Outcome(configured, adapts, thresholds={node: [] for node in range(nodes)})
    for minute in range(minutes):
        online = week.online[:, minute]
        last = week.online[:, minute - 1].mean(axis=1) if minute else online.mean(axis=1)
        room = np.maximum(_CORES * reclaim / 100 - _SYSTEM - last - placed * (1 - 1 / _LIFE), 0) * weight
        placed *= 1 - 1 / _LIFE
        wanted = max(_DEMAND * _CORES * nodes - placed.sum(), 0.0)
        if room.sum():
            placed += np.minimum(room, wanted * room / room.sum())
        budget = _CORES * threshold[:, None] / 100 - _SYSTEM - online
        batch = np.minimum(placed[:, None], np.maximum(budget, _LEAST * _CORES))
        full = (online + batch + _SYSTEM) / _CORES / week.speed[:, minute, None] * week.sensitivity[:, None]
        pressure = week.noise[:, minute] + 70 / (1 + np.exp((_KNEE - full) / 0.03))
        violated += int((pressure > _VIOLATED).sum())
        used_total += float(batch.sum())
        for node, each in enumerate(adapted):
            before = each.level
            state = each.observe(minute, online[node], batch[node], pressure[node])
            outcome.thresholds[node].append(int(threshold[node]))
            if state is None or state.level == before:
                continue
            outcome.steps += 1
            threshold[node] = adaptive.lowered(configured, adaptive.cpu_suppress, state)
            reclaim[node] = adaptive.lowered(configured, adaptive.cpu_reclaim, state)
            weight[node] = state.score_percent / 100
    outcome.violations = violated / week.online.size
    outcome.batch = used_total / _ROUNDS / 60
    return outcome


def compared(outcomes: Sequence[Outcome]) -> list[dict[str, float]]:
    """Each adapted policy beside what fixed thresholds come to, interpolated: the batch work at equal violations, and
    the violations at equal batch work."""
    fixed = sorted((each for each in outcomes if not each.adapts), key=lambda each: each.threshold)
    batch, violations = [each.batch for each in fixed], [each.violations for each in fixed]
    found = []
    for each in (each for each in outcomes if each.adapts):
        at_equal_batch = float(np.interp(each.batch, batch, violations))
        at_equal_violations = float(np.interp(each.violations, violations, batch))
        found.append(
            {
                "threshold": each.threshold,
                "violations": round(each.violations, 4),
                "fixed_violations_at_equal_batch": round(at_equal_batch, 4),
                "batch": round(each.batch),
                "fixed_batch_at_equal_violations": round(at_equal_violations),
                "steps": each.steps,
            }
        )
    return found


def charts(week: Week, outcomes: Sequence[Outcome]) -> list[Chart]:
    """What both kinds of policies come to, and some days of the node that is adapted most."""
    kinds = []
    for name, color, adapts in (("fixed threshold", "#cf222e", False), ("adapted, configured with", "#0969da", True)):
        mine = [each for each in outcomes if each.adapts is adapts]
        points = [(100 * each.violations, each.batch) for each in mine]
        kinds.append(Series(name, color, points, [f"{each.threshold} %" for each in mine], has_line=not adapts))
    adapted = next(each for each in outcomes if each.adapts and each.threshold == _SHOWN)
    node = min(adapted.thresholds, key=lambda each: sum(adapted.thresholds[each]))
    shown = range(0, min(week.online.shape[1], _SHOWN_DAYS * _DAY), 5)
    online = [(minute / 60, float(100 * week.online[node, minute].mean() / _CORES)) for minute in shown]
    limit = [(minute / 60, float(adapted.thresholds[node][minute])) for minute in shown]
    return [
        Chart("Batch work against violations, one week", "violations, % of the time", "batch work, CPU hours", kinds),
        Chart(
            f"One node, configured with {adapted.threshold} %",
            "hours",
            "% of the node's CPUs",
            [Series("suppress threshold", "#0969da", limit), Series("online pods", "#1a7f37", online)],
        ),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.adaptive_slo", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2, help="how many policies are played at once")
    parser.add_argument("--svg", type=Path, default=None, metavar="FILE", help="draw the result")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the week with each policy and print one JSON line."""
    options = _parser().parse_args(arguments)
    week = make_week(options.nodes, options.days, options.seed)
    # Those that take longest first.
    policies = [(threshold, True) for threshold in ADAPTED] + [(threshold, False) for threshold in FIXED]
    with ProcessPoolExecutor(options.processes) as processes:
        outcomes = list(processes.map(partial(played, week), policies))
    fixed = [
        {"threshold": each.threshold, "violations": round(each.violations, 4), "batch": round(each.batch)}
        for each in outcomes
        if not each.adapts
    ]
    if options.svg is not None:
        write_svg(options.svg, charts(week, outcomes))
    figures = {"nodes": options.nodes, "days": options.days, "seed": options.seed}
    print(json.dumps({"benchmark": "adaptive_slo", **figures, "adapted": compared(outcomes), "fixed": fixed}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
