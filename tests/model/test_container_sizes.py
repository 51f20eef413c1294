"""What becomes of requests and limits: names, proportions, whole cores and steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.priority import PriorityClass
from koordinator.api.qos import QoSClass
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import BATCH_CPU
from koordinator.model.container_sizes import (
    Bounds,
    PodShape,
    SizedContainer,
    Sizing,
    Step,
    decide_sizes,
    describe,
)

MI = 1 << 20
PLAIN = PodShape()
ALL = Sizing()


def container(requests: dict[str, str], limits: dict[str, str] | None = None, name: str = "main") -> SizedContainer:
    amounts = [{key: Quantity.parse(text) for key, text in each.items()} for each in (requests, limits or {})]
    return SizedContainer(name, amounts[0], amounts[1])


def sized(*containers: SizedContainer, shape: PodShape = PLAIN, sizing: Sizing = ALL, **amounts: dict[str, int]) -> str:
    return describe(decide_sizes(containers, amounts, shape, sizing))


def test_requests_become_what_is_recommended_and_limits_stay_in_proportion() -> None:
    found = sized(
        container({"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}), main={"cpu": 250, "memory": 512 * MI}
    )

    assert found == "main: cpu 1 -> 250m, memory 1Gi -> 512Mi, cpu limit 2 -> 500m, memory limit 1Gi -> 512Mi"


def test_a_container_without_a_recommendation_stays_as_it_is() -> None:
    assert sized(container({"cpu": "1"}), container({"cpu": "1"}, name="log"), log={"cpu": 250}) == "log: cpu 1 -> 250m"


def test_with_requests_only_no_request_exceeds_its_limit() -> None:
    only = Sizing(requests_only=True)
    assert sized(container({"cpu": "1"}, {"cpu": "2"}), sizing=only, main={"cpu": 5000}) == "main: cpu 1 -> 2"


def test_what_was_not_requested_is() -> None:
    assert sized(container({"memory": "1Mi"}), main={"cpu": 100, "memory": MI}) == "main: cpu none -> 100m"


def test_a_limit_without_a_request_counts_as_the_request() -> None:
    assert sized(container({}, {"cpu": "2"}), main={"cpu": 500}) == "main: cpu none -> 500m, cpu limit 2 -> 500m"


def test_pods_of_a_class_request_what_is_theirs() -> None:
    batch = PodShape(QoSClass.BE, PriorityClass.BATCH)
    own = container({BATCH_CPU: "1000"}, {BATCH_CPU: "1000"})

    assert sized(own, shape=batch, main={"cpu": 250}) == (
        "main: kubernetes.io/batch-cpu 1k -> 250, kubernetes.io/batch-cpu limit 1k -> 250"
    )
    assert sized(own, container({}, name="log"), log={"cpu": 250}) == "log: kubernetes.io/batch-cpu none -> 250"
    assert sized(container({}), shape=batch, main={"memory": MI}) == "main: kubernetes.io/batch-memory none -> 1Mi"
    assert sized(container({"cpu": "1"}), shape=batch, main={"cpu": 250}) == "main: cpu 1 -> 250m"


def test_pods_with_cpus_of_their_own_request_whole_ones() -> None:
    found = sized(
        container({"cpu": "4"}, {"cpu": "4"}),
        container({"cpu": "500m"}, name="side"),
        container({"cpu": "500m"}, name="log"),
        shape=PodShape(QoSClass.LSR),
        main={"cpu": 1200},
        side={"cpu": 600},
    )

    assert found == "main: cpu 4 -> 1900m, cpu limit 4 -> 1900m; side: cpu 500m -> 600m"


def test_what_whole_cpus_lack_is_shared_out_within_what_is_allowed() -> None:
    two = container({"cpu": "1500m"}), container({"cpu": "500m"}, name="side")

    def whole(most: int) -> str:
        allowed = Sizing(bounds={"cpu": Bounds(maximum=most)})
        return sized(*two, shape=PodShape(QoSClass.LSE), sizing=allowed, main={"cpu": 1400}, side={"cpu": 400})

    assert whole(1600) == "main: cpu 1500m -> 1600m; side: cpu 500m -> 400m"
    assert whole(1450) == "main: cpu 1500m -> 1450m; side: cpu 500m -> 550m"


def test_where_whole_cpus_are_not_allowed_the_pod_keeps_those_it_has() -> None:
    only = Sizing(requests_only=True)
    own = container({"cpu": "2", "memory": "1Gi"}, {"cpu": "2"})

    assert sized(
        own,
        container({}, {"cpu": "500m"}, name="side"),
        shape=PodShape(QoSClass.LSR),
        sizing=only,
        main={"cpu": 1800, "memory": 512 * MI},
        side={"cpu": 600},
    ) == ("main: memory 1Gi -> 512Mi; side: cpu none -> 500m")


def test_with_requests_only_a_limit_is_no_larger_multiple_of_its_request_than_is_allowed() -> None:
    only = Sizing(requests_only=True, bounds={"cpu": Bounds(ratio=1500)})
    assert sized(container({"cpu": "2"}, {"cpu": "2"}), sizing=only, main={"cpu": 500}) == "main: cpu 2 -> 1334m"


def test_a_step_goes_no_further_than_it_may() -> None:
    step = Sizing(step=Step(raised=1.0, lowered=0.25))
    assert sized(container({"cpu": "1"}), sizing=step, main={"cpu": 5000}) == "main: cpu 1 -> 2"
    assert sized(container({"cpu": "1"}), sizing=step, main={"cpu": 100}) == "main: cpu 1 -> 750m"
    assert sized(container({"cpu": "1"}), sizing=step, main={"cpu": 900}) == "main: cpu 1 -> 900m"


def test_a_small_difference_is_none_unless_another_one_is_large() -> None:
    rough = Sizing(threshold=0.1)
    both = container({"cpu": "1", "memory": "1Gi"})
    assert sized(both, sizing=rough, main={"cpu": 950, "memory": 1000 * MI}) == ""
    assert sized(both, sizing=rough, main={"cpu": 950, "memory": 512 * MI}) == (
        "main: cpu 1 -> 950m, memory 1Gi -> 512Mi"
    )


@given(request=st.integers(1, 64_000), limit=st.integers(0, 64_000), goal=st.integers(1, 64_000), only=st.booleans())
def test_steps_arrive_and_never_leave_a_request_above_its_limit(
    request: int, limit: int, goal: int, only: bool
) -> None:
    limits = {"cpu": Quantity.from_milli(max(limit, request))} if limit else {}
    own = SizedContainer("main", {"cpu": Quantity.from_milli(request)}, limits)
    sizing = Sizing(requests_only=only, step=Step(raised=0.5, lowered=0.25))
    wanted = min(goal, limits["cpu"].milli) if only and limits else goal

    for _ in range(100):
        change = decide_sizes([own], {"main": {"cpu": goal}}, PLAIN, sizing).get("main")
        if change is None:
            break
        before = own.requests["cpu"].milli
        for amounts, changed in ((own.requests, change.requests), (own.limits, change.limits)):
            amounts.update({name: each.after for name, each in changed.items() if each.after is not None})
        after = own.requests["cpu"].milli
        assert before * 0.75 <= after <= before + max(before * 0.5, 1)
        assert not limits or own.limits["cpu"].milli >= after

    assert abs(own.requests["cpu"].milli - wanted) <= 4
