"""What is done to quotas and pods where the scheduler is configured otherwise.

Over-use is revoked, mins are not scaled, trees have totals of their own.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tests.real.quota_runs import PREFIX, Await, Change, Scenario, chain, pod, quota
from tests.real.quota_scenarios import NO_RUNTIME, TOP, awaited, child, pods

WITHOUT_SCALING: Final = (
    Scenario(
        "mins beyond what there is are kept",
        chain(
            quota("a", {"cpu": "80", "memory": "10Gi"}, {"cpu": "100", "memory": "80Gi"}),
            quota("b", {"cpu": "120", "memory": "10Gi"}, {"cpu": "150", "memory": "80Gi"}),
            *pods("a", 5, cpu="10"),
            *pods("b", 6, cpu="11"),
        ),
    ),
)
"""With enableMinQuotaScale: false."""

REVOKED: Final = (
    Scenario(
        "what was lent is taken back",
        chain(TOP, child("a"), child("b"), *pods("a", 8), *awaited("a", 8), *pods("b", 4), *awaited("b", 4)),
    ),
    Scenario(
        "what may not be preempted stays",
        chain(
            TOP,
            child("a"),
            child("b"),
            *pods("a", 4, preemptible="false"),
            *awaited("a", 4),
            *[pod(f"x-{number}", "a") for number in range(4)],
            *(Await(f"x-{number}") for number in range(4)),
            *pods("b", 4),
            *awaited("b", 4),
        ),
    ),
    Scenario(
        "the less important leave",
        chain(
            quota("a", {}, {"cpu": "4", "memory": "9Gi"}),
            pod("high", "a", priority=10),
            pod("low", "a", priority=0),
            pod("middle", "a", priority=5),
            Await("middle"),
            Change("a", {"spec": {"max": {"cpu": "2"}}}),
        ),
    ),
)
"""With monitorAllQuotas: true and a delayEvictTime of a second."""


def _root(name: str, total: str, **labels: str) -> dict[str, Any]:
    """The root of a tree with so many CPUs."""
    amounts = {"cpu": total, "memory": "80Gi"}
    found = quota(name, amounts, amounts, is_parent="true", is_root="true", tree_id=name, **labels)
    found["metadata"]["annotations"][f"{PREFIX}/total-resource"] = json.dumps(amounts)
    return found


def _of_tree(name: str, tree: str, least: str = "0", most: str = "100") -> dict[str, Any]:
    return quota(name, {"cpu": least, "memory": "0"}, {"cpu": most, "memory": "80Gi"}, parent=tree, tree_id=tree)


TREES: Final = (
    Scenario("a tree has a total of its own", chain(_root("t", "4"), _of_tree("a", "t"), *pods("a", 6))),
    Scenario(
        "two trees do not lend to each other",
        chain(_root("t", "4"), _root("u", "2"), _of_tree("a", "t"), _of_tree("b", "u"), *pods("a", 5), *pods("b", 3)),
    ),
    Scenario(
        "children of a tree share it",
        chain(
            _root("t", "6"),
            _of_tree("a", "t", "2"),
            _of_tree("b", "t", "2"),
            *pods("a", 6),
            *awaited("a", 6),
            *pods("b", 3),
        ),
    ),
    Scenario(
        "the default tree has less",
        chain(
            _root("t", "60"),
            quota("d", {}, {"cpu": "100", "memory": "80Gi"}),
            *pods("d", 5, cpu="11"),
        ),
    ),
    Scenario(
        "the default tree does not have less",
        chain(
            _root("t", "60", ignore_default_tree="true"),
            quota("d", {}, {"cpu": "100", "memory": "80Gi"}),
            *pods("d", 5, cpu="11"),
        ),
    ),
    Scenario(
        "a tree grows",
        chain(
            _root("t", "2"),
            _of_tree("a", "t"),
            *pods("a", 3),
            Change(
                "t",
                {
                    "metadata": {
                        "annotations": {f"{PREFIX}/total-resource": json.dumps({"cpu": "5", "memory": "80Gi"})}
                    },
                    "spec": {"max": {"cpu": "5"}, "min": {"cpu": "5"}},
                },
            ),
            pod("late", "a"),
            Await("late"),
        ),
        compared=NO_RUNTIME,
    ),
)
"""With the gate MultiQuotaTree."""
