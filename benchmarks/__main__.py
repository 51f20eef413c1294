"""``python -m benchmarks``: every benchmark with its default sizes, one JSON line each."""

from __future__ import annotations

import sys

from benchmarks import client_transport, scheduler_throughput

BENCHMARKS = (client_transport, scheduler_throughput)

if __name__ == "__main__":
    sys.exit(max(benchmark.main([]) for benchmark in BENCHMARKS))
