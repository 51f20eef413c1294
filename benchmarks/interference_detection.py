"""How well koordlet finds who disturbs whom, on made traces of one node.

usage: python -m benchmarks.interference_detection [--hours 6] [--nodes 8] [--seed 1]

Each node runs eight latency-sensitive and eight batch pods. Load goes up and down over the hours, batch pods have
bursts that disturb nobody, and online pods have peaks of their own in which they wait for CPUs. Twice an hour a
batch pod becomes an antagonist for five to fifteen minutes, in one of four ways:

cpu      takes CPUs: the others wait for theirs
memory   takes memory bandwidth and caches: the others need more cycles per instruction, and wait for memory
io       takes the disk: the others wait for I/O
network  fills the queues of the node: the others send again what was dropped, and wait for their turn

precision   share of the (victim, indicator, first suspect) that were named in which the suspect was the antagonist
recall      share of the antagonists that were named as the first suspect of a victim while they were at it
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from koordinator.api.qos import QoSClass
from koordinator.koordlet.observe.interference.detection import Indicator, InterferenceDetector, PodReading

KINDS: Final = ("cpu", "memory", "io", "network")
_SECONDS: Final = 10
_HOUR: Final = 3600 // _SECONDS
_START: Final = datetime(2026, 3, 1, tzinfo=UTC)
_GRACE: Final = 12
"""Rounds after an antagonist's end in which it may still be named: the readings are averages."""


@dataclass(frozen=True, slots=True)
class Episode:
    """An antagonist at work, from one round to another."""

    kind: str
    antagonist: str
    start: int
    end: int
    strength: float

    def is_on(self, number: int) -> bool:
        return self.start <= number < self.end


class OnlinePod:
    """A latency-sensitive pod, with a day's wave, noise, and peaks of its own."""

    def __init__(self, name: str, rounds: int, random: Random) -> None:
        self.name = name
        self.base = random.uniform(0.3, 3.0)
        self.cycles = random.uniform(0.8, 2.0)
        self.phase = random.uniform(0, 2 * math.pi)
        self.sensitivity = random.uniform(0.6, 1.4)
        self.traffic = 10 ** random.uniform(4, 6.5)
        starts = [random.randrange(rounds) for _ in range(rounds // _HOUR)]
        self.peaks = [(start, start + random.randint(6, 30)) for start in starts]

    def reading(self, number: int, episodes: Sequence[Episode], random: Random) -> PodReading:
        wave = 1 + 0.3 * math.sin(2 * math.pi * number / (6 * _HOUR) + self.phase)
        peak = any(start <= number < end for start, end in self.peaks)
        cpu = self.base * wave * (2.0 if peak else 1.0) * random.gauss(1, 0.06)
        pressure = max(random.gauss(1.5 * wave, 0.6), 0.0) + (random.uniform(5, 15) if peak else 0.0)
        cycles = self.cycles * (1.1 if peak else 1.0) * random.gauss(1, 0.05)
        memory, waiting = max(random.gauss(0.2, 0.2), 0.0), max(random.gauss(1.0, 0.7), 0.0)
        # Loss comes in bursts; a link has some of its own, and a pod more while it sends more.
        lost = random.expovariate(1 / 0.2) * (3.0 if peak else 1.0)
        delay = random.expovariate(1 / 0.4) * wave * (2.0 if peak else 1.0)
        rate = self.traffic * wave * (2.0 if peak else 1.0) * random.gauss(1, 0.1)
        for episode in episodes:
            if episode.antagonist == self.name:
                continue
            hurt = episode.strength * self.sensitivity * random.gauss(1, 0.2)
            if episode.kind == "cpu":
                pressure += 25 * hurt
            elif episode.kind == "memory":
                cycles *= 1 + 0.7 * max(hurt, 0.0)
                memory += 12 * hurt
            elif episode.kind == "network":
                lost += 4 * max(hurt, 0.0)
                delay += 8 * max(hurt, 0.0)
                rate *= 0.8
            else:
                waiting += 25 * hurt
        indicators = {
            Indicator.CPU: min(max(pressure, 0.0), 100.0),
            Indicator.CYCLES: cycles,
            Indicator.MEMORY: min(max(memory, 0.0), 100.0),
            Indicator.IO: min(max(waiting, 0.0), 100.0),
            Indicator.RETRANSMITS: min(lost, 100.0),
            Indicator.DELAY: delay,
        }
        amounts = (max(cpu, 0.0), 1e9, 1e6 * max(random.gauss(1, 0.3), 0.0) * (2.0 if peak else 1.0), 0.0)
        return PodReading(self.name, self.name, self.name, QoSClass.LS, *amounts, indicators, max(rate, 0.0))


class BatchPod:
    """A best-effort pod, busy by fits and starts."""

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.base = random.uniform(0.1, 1.5)
        self.burst = 1.0
        self.memory = random.uniform(1e8, 2e9)
        self.traffic = 10 ** random.uniform(4, 6.5)

    def reading(self, episodes: Sequence[Episode], random: Random) -> PodReading:
        if random.random() < 1 / 60:
            self.burst = random.choice((0.2, 1.0, 1.0, 1.5, 2.5))
        cpu = self.base * self.burst * random.gauss(1, 0.1)
        grown, io = random.gauss(0, 1e6), 5e6 * self.burst * random.gauss(1, 0.3)
        rate = self.traffic * self.burst * random.gauss(1, 0.3)
        for episode in episodes:
            if episode.antagonist != self.name:
                continue
            if episode.kind == "cpu":
                cpu += 6 * episode.strength
            elif episode.kind == "memory":
                cpu += 2 * episode.strength
                grown += 2e8 * episode.strength
            elif episode.kind == "network":
                rate += 1e8 * episode.strength
            else:
                io += 2e8 * episode.strength
        self.memory = max(self.memory + grown, 1e8)
        amounts = (max(cpu, 0.0), self.memory, max(io, 0.0), None)
        return PodReading(self.name, self.name, self.name, QoSClass.BE, *amounts, network=max(rate, 0.0))


def make_episodes(rounds: int, antagonists: Sequence[str], random: Random) -> list[Episode]:
    """Two an hour or so, of all kinds, after the first hour; two of them may overlap."""
    episodes = []
    for number in range(2 * max(rounds // _HOUR - 1, 1)):
        start = random.randrange(_HOUR, rounds - 90)
        end = start + random.randint(30, 90)
        episodes.append(
            Episode(KINDS[number % len(KINDS)], random.choice(antagonists), start, end, random.uniform(0.6, 1.4))
        )
    return episodes


def simulate(hours: int, seed: int) -> dict[str, Any]:
    """What was named on one node: ``right`` and ``wrong`` by kind of the indicator, ``found`` of ``episodes``."""
    random, rounds = Random(seed), hours * _HOUR
    online = [OnlinePod(f"online-{number}", rounds, random) for number in range(8)]
    batch = [BatchPod(f"batch-{number}", random) for number in range(8)]
    episodes = make_episodes(rounds, [pod.name for pod in batch], random)
    detector, right, wrong, found = InterferenceDetector(), 0, 0, set()
    named: set[tuple[str, str, str]] = set()
    for number in range(rounds):
        active = [episode for episode in episodes if episode.is_on(number)]
        readings = [pod.reading(number, active, random) for pod in online]
        readings += [pod.reading(active, random) for pod in batch]
        findings = detector.observe(readings, _START + timedelta(seconds=number * _SECONDS))
        now = {(each.name, each.indicator.value, each.suspects[0].name) for each in findings if each.suspects}
        recent = [each for each in episodes if each.start <= number < each.end + _GRACE]
        for suspicion in now:
            guilty = [each for each in recent if each.antagonist == suspicion[2] and _fits(each.kind, suspicion[1])]
            found.update(guilty)
            if suspicion not in named:
                right, wrong = (right + 1, wrong) if guilty else (right, wrong + 1)
        named = now
    return {"right": right, "wrong": wrong, "episodes": episodes, "found": found}


def _fits(kind: str, indicator: str) -> bool:
    return (
        indicator
        in {
            "cpu": ("cpu-pressure",),
            "memory": ("cpi", "memory-pressure"),
            "io": ("io-pressure",),
            "network": ("tcp-retransmits", "network-delay"),
        }[kind]
    )


def measure(hours: int, nodes: int, seed: int) -> dict[str, Any]:
    """Precision over all that was named, recall over all antagonists and by kind."""
    results = [simulate(hours, seed * 1000 + number) for number in range(nodes)]
    right, wrong = (sum(each[key] for each in results) for key in ("right", "wrong"))
    recall = {}
    for kind in (*KINDS, None):
        there = [each for result in results for each in result["episodes"] if kind in (None, each.kind)]
        found = [each for result in results for each in result["found"] if kind in (None, each.kind)]
        recall[kind or "all"] = round(len(found) / len(there), 3) if there else None
    named = right + wrong
    return {"named": named, "precision": round(right / named, 3) if named else None, "recall": recall}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=6)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    result = measure(options.hours, options.nodes, options.seed)
    print(json.dumps({"benchmark": "interference_detection", **vars(options), **result}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
