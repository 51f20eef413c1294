"""What koordlet does for an online pod on a real node, beside the Go original on the same node with the same pods.

An online pod serves requests, each so many milliseconds of work, while four best-effort pods burn all the CPU that they
get. ``p99_ms`` is that of its response times: alone, with the burners and no agent, and with each agent;
``times_alone`` is the ratio to the first. Then a second online pod wakes up and burns a CPU. ``seconds_to_hold_down``
is the time until the quota of the best-effort pods is smaller.

All take turns, in several rounds, since the machine is never twice the same: every figure is the median of the rounds,
and a ratio is that of two neighbours in one round. ``ours_idle`` is koordlet with a NodeSLO that requests ``schedIdle``
of best-effort pods as well, which the original leaves alone on a kernel without core scheduling.

usage, as root: python -m benchmarks.koordlet_effect [--request 11 --period 40] [--rounds 5] [--only ours]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.koordlet_cost import agent, agents, cluster_and_node
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.cgroup_reader import NO_LIMIT, CgroupReader
from tests.real.node_pods import offer_batch, pod_document
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs
from tests.real.real_node import EnforcedNode

_NODE: Final = "koordlet-effect"
_NAMESPACE: Final = "koordlet-effect"
_BURNERS: Final = 4
_LAYOUT: Final = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V1, CgroupDriver.CGROUPFS)
_READER: Final = CgroupReader(_LAYOUT, os.sysconf("SC_PAGESIZE"))
_BEST_EFFORT: Final = _LAYOUT.qos("BestEffort")
_QUOTA_FILE: Final = Path(f"/sys/fs/cgroup/cpu/{_BEST_EFFORT}/cpu.cfs_quota_us")
_IDLE_FILE: Final = Path(f"/sys/fs/cgroup/cpu/{_BEST_EFFORT}/cpu.idle")
_LESS: Final = 30_000
"""Microseconds of a quota: more than noise on the machine makes of it."""
_SETTLE_SECONDS: Final = 10.0
_LIMIT_SECONDS: Final = 60.0
_SERVER: Final = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define SECOND 1000000000L
/* usage: server WORK_NANOSECONDS PERIOD_NANOSECONDS FILE: a line for each request: when it came, how long it took */
static long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * SECOND + t.tv_nsec;
}
static void work(long iterations) {
  for (volatile long i = 0; i < iterations; i++);
}
/* How long a million iterations take where nothing disturbs them. */
static long million(void) {
  long shortest = SECOND;
  for (int i = 0; i < 200; i++) {
    long begun = now();
    work(1000000);
    long took = now() - begun;
    if (took < shortest) shortest = took;
  }
  return shortest;
}
int main(int argc, char **argv) {
  if (argc != 4) return 1;
  long period = atol(argv[2]), iterations = atol(argv[1]) * 1000000 / million();
  FILE *out = fopen(argv[3], "w");
  if (!out) return 1;
  for (long due = now() + period;; due += period) {
    struct timespec t = {due / SECOND, due % SECOND};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
    work(iterations);
    fprintf(out, "%ld %ld\n", due, now() - due);
    fflush(out);
  }
}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one JSON line; 1 when the programs are absent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--request", type=float, default=11, help="the work of a request, in milliseconds")
    parser.add_argument("--period", type=int, default=40, help="from one request to the next, in milliseconds")
    parser.add_argument("--seconds", type=float, default=10, help="of requests, of each in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("ours", "ours_idle", "original"), default="")
    given = parser.parse_args(arguments)
    programs = find_real_programs()
    if programs is None:
        sys.stderr.write(f"{HOW_TO_GET}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="keffect", ignore_cleanup_errors=True) as folder:
        figures = _compare(programs, Path(folder), given)
    print(json.dumps({"benchmark": "koordlet_effect", **vars(given), **figures}))
    return 0


def _compare(programs: RealPrograms, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    with cluster_and_node(programs, folder, _NODE, _NAMESPACE) as node:
        stage = _Stage(node, folder, given)
        found: dict[str, list[_Turn]] = {}
        for number in range(given.rounds):
            turns = {"alone": _Turn(stage.percentile())}
            with stage.burning():
                turns["no_agent"] = _Turn(stage.percentile())
            for name, (command, policy) in _contenders(programs, given.only).items():
                stage.apply(policy)
                with agent(node, command, folder / f"{name}-{number}"):
                    turns[name] = stage.protected()
                stage.clear()
            for name, turn in turns.items():
                found.setdefault(name, []).append(turn)
            sys.stderr.write(f"round {number + 1}: { ({name: round(turn.p99, 2) for name, turn in turns.items()}) }\n")
        return {name: _figures(turns, found["alone"]) for name, turns in found.items()}


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one contender did in one round: milliseconds and seconds."""

    p99: float
    to_hold_down: float | None = None


def _contenders(programs: RealPrograms, only: str) -> dict[str, tuple[list[str], dict[str, Any]]]:
    """The command of each and the NodeSLO that it gets, by name."""
    found = {name: (command, _POLICY) for name, command in agents(programs, "").items()}
    ours, _ = found["ours"]
    found["ours_idle"] = [*ours, "--feature-gates=CoreSched=true"], _POLICY | _IDLE
    return {name: each for name, each in found.items() if name == (only or name)}


def _figures(turns: Sequence[_Turn], alone: Sequence[_Turn]) -> dict[str, Any]:
    ratios = [turn.p99 / reference.p99 for turn, reference in zip(turns, alone, strict=True)]
    figures: dict[str, Any] = {
        "p99_ms": round(median(turn.p99 for turn in turns), 2),
        "times_alone": round(median(ratios), 2),
        "times_alone_by_round": [round(ratio, 2) for ratio in ratios],
    }
    delays = [turn.to_hold_down for turn in turns if turn.to_hold_down is not None]
    return figures | ({"seconds_to_hold_down": round(median(delays), 2)} if delays else {})


class _Stage:
    """The pods, whose burners stand still unless they are told to burn."""

    def __init__(self, node: EnforcedNode, folder: Path, given: argparse.Namespace) -> None:
        self._node = node
        self._seconds = given.seconds
        self._requests = _server(folder)
        offer_batch(node, "4000")
        self._apply("NodeMetric", {})
        mounted = f"/served/{self._requests.name}"
        command = ["/served/server", str(int(given.request * 1e6)), str(given.period * 1_000_000), mounted]
        node.run_pod(_pod("online", "LS", command, self._requests.parent))
        burn = ["/pause", "burn"]
        self._batch = [self._burner(_pod(f"batch-{number}", "BE", burn)) for number in range(_BURNERS)]
        self._second = self._burner(_pod("second", "LS", burn))

    def _apply(self, kind: str, spec: dict[str, Any]) -> None:
        version = "slo.koordinator.sh/v1alpha1"
        self._node.apply({"apiVersion": version, "kind": kind, "metadata": {"name": _NODE}, "spec": spec})

    def apply(self, policy: dict[str, Any]) -> None:
        """The NodeSLO is this from now on."""
        self._apply("NodeSLO", policy)

    def _burner(self, document: dict[str, Any]) -> int:
        pod = self._node.run_pod(document)
        folder = _LAYOUT.pod(pod["metadata"]["uid"], pod["status"]["qosClass"])
        containers = [entry.name for entry in Path(f"/sys/fs/cgroup/cpu/{folder}").iterdir() if entry.is_dir()]
        processes = [number for name in containers for number in _READER.processes(f"{folder}/{name}")]
        burning = [number for number in processes if b"burn" in Path(f"/proc/{number}/cmdline").read_bytes()]
        if len(burning) != 1:
            raise RuntimeError(f"the pod {document['metadata']['name']} has not one process that burns: {burning}")
        os.kill(burning[0], signal.SIGSTOP)
        return burning[0]

    @contextmanager
    def burning(self) -> Iterator[None]:
        """The best-effort pods do, in the block."""
        for number in self._batch:
            os.kill(number, signal.SIGCONT)
        try:
            yield
        finally:
            for number in self._batch:
                os.kill(number, signal.SIGSTOP)

    def percentile(self) -> float:
        """The 99th of the response times from now on, in milliseconds."""
        begun = time.monotonic_ns()
        time.sleep(self._seconds)
        lines = (line.split() for line in self._requests.read_text().splitlines()[:-1])
        times = sorted(int(took) for due, took in lines if int(due) >= begun)
        if len(times) < 50:
            raise RuntimeError(f"{len(times)} requests in {self._seconds:.0f} s")
        return times[len(times) * 99 // 100] / 1e6

    def protected(self) -> _Turn:
        """With an agent that has just been started."""
        with self.burning():
            _until(lambda: _quota() != NO_LIMIT)
            time.sleep(_SETTLE_SECONDS)
            return _Turn(self.percentile(), self._held_down())

    def _held_down(self) -> float:
        time.sleep(_SETTLE_SECONDS)
        # What else the machine does may leave the pods too little to see it become less.
        _until(lambda: _quota() >= 2 * _LESS)
        before, begun = _quota(), time.monotonic()
        os.kill(self._second, signal.SIGCONT)
        try:
            _until(lambda: _quota() <= before - _LESS)
            return time.monotonic() - begun
        finally:
            os.kill(self._second, signal.SIGSTOP)

    def clear(self) -> None:
        """Take back what an agent has left."""
        _QUOTA_FILE.write_text("-1")
        _IDLE_FILE.write_text("0")


_POLICY: Final = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressPolicy": "cfsQuota",
        "cpuSuppressThresholdPercent": 65,
    }
}
_IDLE: Final = {
    "resourceQOSStrategy": {
        "policies": {"cpuPolicy": "coreSched"},
        "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}},
    }
}


def _server(folder: Path) -> Path:
    """Build the program that the online pod runs; the file that it writes, beside it."""
    work = folder / "work"
    work.mkdir()
    source = work / "server.c"
    source.write_text(_SERVER)
    subprocess.run(["gcc", "-O1", "-static", "-o", str(work / "server"), str(source)], check=True)
    return work / "requests"


def _pod(name: str, qos: str, command: Sequence[str], folder: Path | None = None) -> dict[str, Any]:
    batch = {"kubernetes.io/batch-cpu": "500"}
    container = {
        "command": list(command),
        "resources": {"requests": batch, "limits": batch} if qos == "BE" else {"requests": {"cpu": "500m"}},
        "volumeMounts": [{"name": "work", "mountPath": "/served"}] if folder else [],
    }
    pod = pod_document(_NODE, _NAMESPACE, name, container, {"koordinator.sh/qosClass": qos})
    pod["spec"]["volumes"] = [{"name": "work", "hostPath": {"path": str(folder)}}] if folder else []
    return pod


def _quota() -> int:
    return _READER.cpu_quota(_BEST_EFFORT)


def _until(condition: Callable[[], bool]) -> None:
    given_up = time.monotonic() + _LIMIT_SECONDS
    while not condition():
        if time.monotonic() > given_up:
            raise RuntimeError(f"the quota of best-effort pods is {_quota()} us after {_LIMIT_SECONDS:.0f} s")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
