"""What prod pods leave unused and what they use at most: the original's responses, and what holds for any pods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.koordlet.observe.prediction.forecast import (
    MIN_PREDICTOR,
    POD_PREDICTOR,
    PRIORITY_PREDICTOR,
    Amount,
    Forecast,
    forecast_prod,
)
from koordinator.koordlet.observe.prediction.models import Peak
from koordinator.koordlet.observe.prediction.options import PredictionOptions
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MIB = 1 << 20
LAYOUT = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V2, CgroupDriver.SYSTEMD)
RULES = PredictionOptions(timedelta(hours=1), 10)
PARTS = {
    "__node-sys__": Peak(300, 512 * MIB),
    "__node-koord-prod__": Peak(1000, 1024 * MIB),
    "__node-__": Peak(0, 0),
}
"""The peaks of the original's test."""


def amount(milli: int, size: int) -> Amount:
    return Amount(milli * 10**6, size * 10**9)


def make_pod(uid: str, cpu: str = "1", memory: str = "1Gi", *, age_minutes: int = 120, **more: Any) -> NodePod:
    created = (NOW - timedelta(minutes=age_minutes)).isoformat()
    requests = {"cpu": cpu, "memory": memory}
    document = {
        "metadata": {"name": uid, "uid": uid, "creationTimestamp": created, **more.pop("metadata", {})},
        "spec": {"priority": 9000, "containers": [{"name": "c", "resources": {"requests": requests}}], **more},
        "status": {"phase": more.pop("phase", "Running")},
    }
    (made,) = node_pods([convert(document, Pod)], LAYOUT)
    return made


def make_node(cpu: str = "3", memory: str = "3Gi", **metadata: Any) -> Node:
    allocatable = {"cpu": cpu, "memory": memory}
    return convert({"metadata": {"name": "n", **metadata}, "status": {"allocatable": allocatable}}, Node)


def forecast(
    pods: list[NodePod], node: Node | None = None, rules: PredictionOptions = RULES, **peaks: Peak
) -> Forecast:
    return forecast_prod(pods, node or make_node(), {**PARTS, **peaks}.get, rules, NOW)


NEW = make_pod("new", age_minutes=1)
KNOWN = make_pod("known", "2", "2Gi")
ENDING = make_pod("ending", "2", "2Gi", metadata={"deletionTimestamp": NOW.isoformat()})
KNOWN_PEAK = Peak(500, 1024 * MIB)


@pytest.mark.parametrize(
    ("cpu", "memory", "by_pod", "by_priority"),
    [
        ("3", "3Gi", (1450, 2048 * MIB - 1181116006), (1570, 3072 * MIB - 1771674009)),
        ("8", "8Gi", (1450, 2048 * MIB - 1181116006), (1570, 3072 * MIB - 1771674009)),
        ("1", "1Gi", (450, 0), (0, 0)),
    ],
)
def test_reclaimable_is_what_the_original_finds(
    cpu: str, memory: str, by_pod: tuple[int, int], by_priority: tuple[int, int]
) -> None:
    """The cases of TestProdReclaimablePredictor_AddPod: a new pod, one that is known, and one that is being deleted."""
    result = forecast([NEW, KNOWN, ENDING], make_node(cpu, memory), known=KNOWN_PEAK).reclaimable
    assert result[POD_PREDICTOR] == amount(*by_pod)
    assert result[PRIORITY_PREDICTOR] == amount(*by_priority)
    assert result[MIN_PREDICTOR] == amount(*by_pod).least(amount(*by_priority))


def test_the_peak_counts_requests_of_what_is_not_known() -> None:
    """The case of TestPodReclaimablePredictor_GetPeak."""
    unknown = make_pod("unknown", "500m", "512Mi")
    peak = forecast([NEW, KNOWN, unknown], known=Peak(500, 768 * MIB)).peak
    assert peak[POD_PREDICTOR] == amount(550 + 1000 + 500, 885837004 + 1024 * MIB + 512 * MIB)
    assert peak[PRIORITY_PREDICTOR] == amount(1430, 1771674009)
    assert peak[MIN_PREDICTOR] == peak[POD_PREDICTOR]


def test_the_request_of_a_pod_without_a_model_is_not_lent_out() -> None:
    unknown = make_pod("unknown", "8", "8Gi")
    node = make_node("64", "64Gi")
    assert forecast([KNOWN, unknown], node, known=KNOWN_PEAK).reclaimable == (
        forecast([KNOWN], node, known=KNOWN_PEAK).reclaimable
    )


@pytest.mark.parametrize("priority", [7500, 5500, 3500])
def test_pods_of_other_classes_do_not_count(priority: int) -> None:
    assert forecast([make_pod("other", priority=priority)]) == forecast([])


def test_a_pod_that_has_finished_does_not_count_however_new_it_is() -> None:
    finished = make_pod("job", age_minutes=1, phase="Succeeded")
    assert forecast([finished]) == forecast([])


def test_the_raw_allocatable_goes_before_the_amplified_one() -> None:
    raw = {"node.koordinator.sh/raw-allocatable": '{"cpu":"1","memory":"1Gi"}'}
    assert forecast([KNOWN], make_node("8", "8Gi", annotations=raw), known=KNOWN_PEAK) == (
        forecast([KNOWN], make_node("1", "1Gi"), known=KNOWN_PEAK)
    )


@pytest.mark.parametrize("text", ["", "no JSON", "null", '{"cpu":"lots"}', "[]"])
def test_a_raw_allocatable_that_cannot_be_read_is_ignored(text: str) -> None:
    annotated = make_node(annotations={"node.koordinator.sh/raw-allocatable": text})
    assert forecast([KNOWN], annotated, known=KNOWN_PEAK) == forecast([KNOWN], known=KNOWN_PEAK)


@pytest.mark.parametrize("part", list(PARTS))
def test_without_a_part_of_the_node_there_is_no_forecast(part: str) -> None:
    peaks = {name: peak for name, peak in PARTS.items() if name != part}
    assert forecast_prod([KNOWN], make_node(), peaks.get, RULES, NOW) == Forecast(
        problem=f"nothing has been learned of {part} yet"
    )


def test_a_node_without_allocatable_has_a_peak_but_nothing_to_lend() -> None:
    result = forecast([KNOWN], Node(), known=KNOWN_PEAK)
    assert (dict(result.reclaimable), result.problem) == ({}, "the Node has no status.allocatable")
    assert result.peak[MIN_PREDICTOR] == amount(1430, 1771674009)


_PEAKS = st.builds(Peak, st.integers(0, 10**6), st.integers(0, 2**42))
_REQUESTS = st.tuples(st.integers(0, 64000), st.integers(0, 2**38))


@given(st.lists(st.tuples(_REQUESTS, _PEAKS, st.booleans())), _REQUESTS, _PEAKS, st.integers(0, 100))
def test_what_is_lent_out_is_never_more_than_requests_or_the_node_have_left(
    drawn: list[tuple[tuple[int, int], Peak, bool]], allocatable: tuple[int, int], of_prod: Peak, margin: int
) -> None:
    pods = [
        make_pod(f"p{number}", f"{cpu}m", str(memory), age_minutes=1 if is_new else 120)
        for number, ((cpu, memory), _, is_new) in enumerate(drawn)
    ]
    peaks = {f"p{number}": peak for number, (_, peak, _) in enumerate(drawn)} | {"__node-koord-prod__": of_prod}
    node = make_node(f"{allocatable[0]}m", str(allocatable[1]))
    result = forecast(pods, node, PredictionOptions(timedelta(hours=1), margin), **peaks)
    least = result.reclaimable[MIN_PREDICTOR]
    requested = amount(sum(cpu for (cpu, _), _, _ in drawn), sum(memory for (_, memory), _, _ in drawn))
    assert amount(0, 0) == least.least(amount(0, 0))
    assert least == least.least(requested).least(amount(*allocatable))
    assert result.peak[MIN_PREDICTOR] == result.peak[MIN_PREDICTOR].most(Amount.of(of_prod, margin))
