"""Which workloads run when none is named: one of middle size of each kind of rule that schedulers are asked to keep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from benchmarks.scheduler_perf.test_cases import Found
from koordinator.base.errors import ConfigurationError

DEFAULT: Final = {
    "SchedulingBasic": "500Nodes",
    "SchedulingPodAffinity": "500Nodes",
    "SchedulingPodAntiAffinity": "500Nodes",
    "SchedulingNodeAffinity": "500Nodes",
    "TopologySpreading": "500Nodes",
    "PreferredTopologySpreading": "500Nodes",
    "MixedSchedulingBasePod": "500Nodes",
    "PreemptionBasic": "1000Nodes",
    "Unschedulable": "500Nodes/10Init/1kPods",
    "SchedulingSecrets": "500Nodes",
    "SchedulingInTreePVs": "500Nodes",
    "SchedulingCSIPVs": "500Nodes",
}
"""Test case -> workload."""


def select(found: Sequence[Found], cases: Sequence[str] | None, workloads: Sequence[str] | None) -> list[Found]:
    """Those of the named test cases (default: all) and workloads; without any name, the default ones.

    Raises ConfigurationError when a name is nobody's.
    """
    if not cases and not workloads:
        return [one for one in found if DEFAULT.get(one.case.name) == one.workload.name]
    _check("--test-case", cases, [one.case.name for one in found])
    chosen = [one for one in found if not cases or one.case.name in cases]
    _check("--workload", workloads, [one.workload.name for one in chosen])
    return [one for one in chosen if not workloads or one.workload.name in workloads]


def _check(option: str, wanted: Iterable[str] | None, known: Sequence[str]) -> None:
    for name in wanted or ():
        if name not in known:
            raise ConfigurationError(option, name, f"one of {', '.join(dict.fromkeys(known))}")
