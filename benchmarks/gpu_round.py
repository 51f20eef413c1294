"""What the NVIDIA GPUs of this machine cost koordlet: to open the driver's library, and in each round of a second.

Times are in milliseconds; the wall time counts too, since nothing else of koordlet runs during these calls. Memory is
in MiB and includes the bindings and the library.

usage: python -m benchmarks.gpu_round [--rounds 200]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from koordinator.node.errors import Unavailable
from koordinator.node.host import Host
from koordinator.node.nvml import NVML, open_nvml


def main(arguments: Sequence[str], open_library: Callable[[Host], NVML | Unavailable] = open_nvml) -> int:
    """1 where there is no GPU to measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_round")
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args(arguments)
    before, started = _resident(), time.perf_counter()
    library = open_library(Host())
    if isinstance(library, Unavailable):
        sys.stderr.write(f"{library}\n")
        return 1
    opened = time.perf_counter() - started
    try:
        rounds = _rounds(library, options.rounds)
    finally:
        library.close()
    report = {"benchmark": "gpu_round", "rounds": options.rounds, "gpus": len(library.gpus), "open": _milli(opened)}
    print(json.dumps({**report, **rounds, "memory": round(_resident() - before, 1)}))
    return 0


def _rounds(library: NVML, count: int) -> dict[str, Any]:
    library.failures()
    processes = sum(len(found) for found in library.processes().values())
    cpu, walls = time.process_time(), []
    for _ in range(count):
        started = time.perf_counter()
        library.processes()
        library.failures()
        walls.append(time.perf_counter() - started)
    cpu = (time.process_time() - cpu) / count
    wall = {"median": _milli(statistics.median(walls)), "longest": _milli(max(walls))}
    return {"processes": processes, "cpu": _milli(cpu), "wall": wall}


def _resident() -> float:
    return float(psutil.Process().memory_info().rss) / (1 << 20)


def _milli(seconds: float) -> float:
    return round(seconds * 1000, 3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
