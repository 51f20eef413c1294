"""``python -m benchmarks``: every benchmark that needs nothing but Python, at its default size, one JSON line each."""

from __future__ import annotations

import sys

from benchmarks import client_transport, decision_cost, intake_cost, store_writes

BENCHMARKS = (client_transport, decision_cost, intake_cost, store_writes)

if __name__ == "__main__":
    sys.exit(max(benchmark.main([]) for benchmark in BENCHMARKS))
