"""What is done to quotas and pods, to compare what becomes of them with the Go original's scheduler.

Two nodes of 50 CPUs and 100 GiB each are all that there is.
"""

from __future__ import annotations

from typing import Any, Final

from tests.real.quota_runs import PREFIX, WRITTEN, Await, Change, Delete, Scenario, chain, pod, quota

CPU10: Final = {"cpu": "10", "memory": "40Gi"}
NO_RUNTIME: Final = (*(each for each in WRITTEN if each != "runtime"), "used")
TOP: Final = quota("top", CPU10, CPU10, is_parent="true")
"""What a and b share."""


def child(name: str, least: str = "4", most: str = "8", **more: Any) -> dict[str, Any]:
    given = {"parent": "top", **more}
    return quota(name, {"cpu": least, "memory": "20Gi"}, {"cpu": most, "memory": "40Gi"}, **given)


def pods(of: str, count: int, **more: Any) -> list[dict[str, Any]]:
    return [pod(f"{of or 'none'}-{number}", of, **more) for number in range(count)]


def awaited(of: str, count: int) -> list[Await]:
    return [Await(f"{of}-{number}") for number in range(count)]


SCENARIOS: Final = (
    Scenario("one quota up to its max", chain(quota("a", {}, {"cpu": "2", "memory": "8Gi"}), *pods("a", 4))),
    Scenario("memory is the limit", chain(quota("a", {}, {"cpu": "20", "memory": "3Gi"}), *pods("a", 4))),
    Scenario("both are the limit", chain(quota("a", {}, {"cpu": "1", "memory": "1Gi"}), *pods("a", 2))),
    Scenario("only CPU is limited", chain(quota("a", {}, {"cpu": "2"}), *pods("a", 3, memory="30Gi"))),
    Scenario("lending to a sibling", chain(TOP, child("a"), child("b"), *pods("a", 8), *pods("b", 1))),
    Scenario("lending up to max", chain(TOP, child("a", most="6"), child("b"), *pods("a", 8))),
    Scenario(
        "taken back from the borrower",
        chain(
            TOP, child("a"), child("b"), *pods("a", 8), *(Await(f"a-{number}") for number in range(8)), *pods("b", 4)
        ),
    ),
    Scenario(
        "who does not lend keeps its min",
        chain(TOP, child("a"), child("b", allow_lent_resource="false"), *pods("a", 8)),
        # The original's b has no pod yet, so that the request for its min has not reached what computes shares.
        compared=NO_RUNTIME,
    ),
    Scenario(
        "shared by weight",
        chain(
            TOP,
            child("a", "0", "10", weight='{"cpu":"1","memory":"1"}'),
            child("b", "0", "10", weight='{"cpu":"3","memory":"3"}'),
            *pods("a", 10),
            *(Await(f"a-{number}") for number in range(10)),
            *pods("b", 10),
        ),
    ),
    Scenario(
        "an odd unit",
        chain(
            quota("top", {"cpu": "10", "memory": "40Gi"}, {"cpu": "10", "memory": "40Gi"}, is_parent="true"),
            child("a", "0", "10"),
            child("b", "0", "10"),
            child("c", "0", "10"),
            *pods("a", 5),
            *(Await(f"a-{number}") for number in range(5)),
            *pods("b", 5),
            *(Await(f"b-{number}") for number in range(5)),
            *pods("c", 5),
        ),
    ),
    Scenario(
        "an unreadable weight counts as max",
        chain(
            TOP,
            child("a", "0", "10", weight="three"),
            child("b", "0", "10"),
            *pods("a", 7),
            *(Await(f"a-{number}") for number in range(7)),
            *pods("b", 7),
        ),
    ),
    Scenario(
        "three levels",
        chain(
            quota("top", CPU10, CPU10, is_parent="true"),
            quota("mid", {"cpu": "5", "memory": "20Gi"}, CPU10, parent="top", is_parent="true"),
            child("a", "2", "8", parent="mid"),
            child("b", "2", "8", parent="top"),
            *pods("a", 9),
            *pods("b", 3),
        ),
    ),
    Scenario(
        "mins beyond what there is",
        chain(
            quota("a", {"cpu": "80", "memory": "10Gi"}, {"cpu": "100", "memory": "80Gi"}),
            quota("b", {"cpu": "120", "memory": "10Gi"}, {"cpu": "150", "memory": "80Gi"}),
            *pods("a", 5, cpu="10"),
            *pods("b", 6, cpu="11"),
        ),
    ),
    Scenario("no pod is preemptible beyond min", chain(TOP, child("a", "2"), *pods("a", 4, preemptible="false"))),
    Scenario(
        "non-preemptible beside preemptible",
        chain(
            TOP,
            child("a", "2"),
            pod("x-0", "a"),
            pod("x-1", "a", preemptible="false"),
            pod("x-2", "a", cpu="2", preemptible="false"),
        ),
    ),
    Scenario("a pod without a quota", chain(TOP, child("a"), *pods("", 3))),
    Scenario("a quota that nobody knows", chain(TOP, child("a"), *pods("nowhere", 2))),
    Scenario("the quota of the namespace", chain(quota("default", {}, {"cpu": "2", "memory": "9Gi"}), *pods("", 3))),
    Scenario(
        "a quota that claims the namespace",
        chain(
            quota("a", {}, {"cpu": "2", "memory": "9Gi"}, namespaces='["default"]', namespace="koordinator-system"),
            *pods("", 3),
        ),
    ),
    Scenario(
        "a label before the namespace",
        chain(
            quota("default", {}, {"cpu": "1", "memory": "9Gi"}),
            quota("a", {}, {"cpu": "2", "memory": "9Gi"}),
            *pods("a", 3),
        ),
    ),
    Scenario(
        "max goes up",
        chain(
            quota("a", {}, {"cpu": "1", "memory": "9Gi"}),
            *pods("a", 2),
            Change("a", {"spec": {"max": {"cpu": "2"}}}),
            Await("a-1"),
        ),
    ),
    Scenario(
        "max goes below what is used",
        chain(
            quota("a", {}, {"cpu": "3", "memory": "9Gi"}),
            *pods("a", 2),
            Change("a", {"spec": {"max": {"cpu": "1"}}}),
            pod("late", "a"),
        ),
    ),
    Scenario(
        "a pod leaves", chain(quota("a", {}, {"cpu": "1", "memory": "9Gi"}), *pods("a", 2), Delete("a-0"), Await("a-1"))
    ),
    Scenario("a borrower leaves", chain(TOP, child("a"), child("b"), *pods("a", 9), Delete("a-0"), Await("a-8"))),
    Scenario(
        "a child moves to another parent",
        chain(
            TOP,
            quota("other", {"cpu": "2", "memory": "40Gi"}, {"cpu": "2", "memory": "40Gi"}, is_parent="true"),
            child("a"),
            *pods("a", 3),
            Change("a", {"metadata": {"labels": {f"{PREFIX}/parent": "other"}}}),
            pod("late", "a"),
        ),
        # The original computes the runtime of a parent when a child is queried about: that of top stays.
        compared=NO_RUNTIME,
    ),
    Scenario(
        "lending is switched off",
        chain(
            TOP,
            child("a"),
            child("b"),
            *pods("a", 3),
            Change("b", {"metadata": {"labels": {f"{PREFIX}/allow-lent-resource": "false"}}}),
            *pods("a", 8)[3:],
        ),
    ),
    Scenario(
        "preemption in the quota",
        chain(
            quota("a", {}, {"cpu": "2", "memory": "9Gi"}),
            pod("low", "a", cpu="2"),
            Await("low"),
            pod("vip", "a", priority=10),
            Await("vip"),
        ),
    ),
    Scenario(
        "no preemption of equals",
        chain(
            quota("a", {}, {"cpu": "2", "memory": "9Gi"}),
            pod("low", "a", cpu="2", priority=10),
            Await("low"),
            pod("vip", "a", priority=10),
        ),
    ),
    Scenario(
        "no preemption of what may not be",
        chain(
            quota("a", {"cpu": "2", "memory": "9Gi"}, {"cpu": "2", "memory": "9Gi"}),
            pod("low", "a", cpu="2", preemptible="false"),
            Await("low"),
            pod("vip", "a", priority=10),
        ),
        compares_preemption=False,
    ),
    Scenario(
        "no preemption in another quota",
        chain(
            quota("a", {}, {"cpu": "2", "memory": "9Gi"}),
            quota("b", {}, {"cpu": "20", "memory": "9Gi"}),
            pod("low", "b", cpu="2"),
            Await("low"),
            pod("first", "a", cpu="2", priority=10),
            Await("first"),
            pod("vip", "a", priority=10),
        ),
        compares_preemption=False,
    ),
    Scenario("zero max", chain(quota("a", {}, {"cpu": "0", "memory": "9Gi"}), *pods("a", 1))),
    Scenario(
        "a resource that the pod does not ask for is used up",
        chain(
            quota("a", {}, {"cpu": "4", "memory": "2Gi"}),
            pod("x-0", "a", memory="2Gi"),
            Change("a", {"spec": {"max": {"memory": "1Gi"}}}),
            pod("x-1", "a", memory=""),
        ),
    ),
    Scenario(
        "pods of a parent", chain(TOP, child("a"), *[pod(f"x-{number}", "top") for number in range(3)], *pods("a", 8))
    ),
    Scenario(
        "a weight of zero for one resource",
        chain(
            TOP,
            child("a", "2", "10", weight='{"cpu":"0","memory":"1"}'),
            child("b", "2", "10"),
            *pods("a", 4),
            *pods("b", 3),
        ),
    ),
    Scenario(
        "lent to a cousin",
        chain(
            TOP,
            quota("left", {"cpu": "4", "memory": "20Gi"}, CPU10, parent="top", is_parent="true"),
            quota("right", {"cpu": "4", "memory": "20Gi"}, CPU10, parent="top", is_parent="true"),
            child("a", "2", "10", parent="left"),
            child("b", "2", "10", parent="right"),
            *pods("a", 10),
            *awaited("a", 10),
            *pods("b", 5),
        ),
    ),
    Scenario(
        "the least important of the quota leaves",
        chain(
            quota("a", {}, {"cpu": "2", "memory": "9Gi"}),
            pod("middle", "a", priority=5),
            pod("low", "a"),
            Await("low"),
            pod("vip", "a", priority=10),
            Await("vip"),
        ),
    ),
    Scenario(
        "preemption for memory",
        chain(
            quota("a", {}, {"cpu": "9", "memory": "2Gi"}),
            pod("low", "a", memory="2Gi"),
            Await("low"),
            pod("vip", "a", priority=10),
            Await("vip"),
        ),
    ),
    Scenario(
        "min goes up at the cost of a borrower",
        chain(
            TOP,
            child("a", "2", "10"),
            child("b", "2", "10"),
            *pods("a", 8),
            *awaited("a", 8),
            Change("b", {"spec": {"min": {"cpu": "6"}}}),
            *pods("b", 3),
        ),
    ),
)
"""With the default arguments of the plugin."""

BY_MAX: Final = (
    Scenario("max is the limit, not runtime", chain(TOP, child("a"), child("b"), *pods("b", 8), *pods("a", 5))),
    Scenario(
        "the texts are those of the spec", chain(quota("a", {}, {"cpu": "2000m", "memory": "3072Mi"}), *pods("a", 3))
    ),
)
"""With enableRuntimeQuota: false."""

WITH_PARENTS: Final = (
    Scenario(
        "a parent is used up",
        chain(
            quota("top", {"cpu": "4", "memory": "40Gi"}, {"cpu": "4", "memory": "40Gi"}, is_parent="true"),
            child("a", "0"),
            child("b", "0"),
            *pods("a", 3),
            *pods("b", 3),
        ),
    ),
    Scenario(
        "a grandparent is used up",
        chain(
            quota("top", {"cpu": "4", "memory": "40Gi"}, {"cpu": "4", "memory": "40Gi"}, is_parent="true"),
            quota("mid", {"cpu": "0", "memory": "20Gi"}, CPU10, parent="top", is_parent="true"),
            child("a", "0", parent="mid"),
            child("b", "0"),
            *pods("b", 3),
            *pods("a", 3),
        ),
    ),
)
"""With enableCheckParentQuota: true and enableRuntimeQuota: false."""
