"""Who suffers, and who is named for it: rounds of readings as they come from one node."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.interference_detection import measure
from koordinator.api.qos import QoSClass
from koordinator.koordlet.observe.interference.detection import (
    LEAST_CORRELATION,
    Finding,
    Indicator,
    InterferenceDetector,
    PodReading,
)
from koordinator.koordlet.observe.interference.normal_band import NormalBand
from tests.examples import examples

START = datetime(2026, 3, 1, tzinfo=UTC)
LEARNED = 40
"""Rounds after which the band of an indicator is known."""


def online(cpu: float = 1.0, pressure: float = 1.0, throttled: float = 0.0) -> PodReading:
    return PodReading("web", "shop/web", "web", QoSClass.LS, cpu, 1e9, 0.0, throttled, {Indicator.CPU: pressure})


def batch(name: str = "job", cpu: float = 0.5, qos: QoSClass = QoSClass.BE) -> PodReading:
    return PodReading(name, f"team/{name}", name, qos, cpu, 1e9, 0.0)


def play(rounds: Sequence[Sequence[PodReading]], detector: InterferenceDetector | None = None) -> list[list[Finding]]:
    """What was found after each round."""
    detector = detector or InterferenceDetector()
    return [
        detector.observe(readings, START + timedelta(seconds=10 * number)) for number, readings in enumerate(rounds)
    ]


QUIET = [(online(), batch())] * LEARNED
HURT = [(online(pressure=30.0), batch(cpu=6.0))] * 12


def test_a_pod_that_suffers_while_another_is_busy() -> None:
    (finding,) = play(QUIET + HURT)[-1]
    assert (finding.name, finding.indicator, finding.value) == ("shop/web", Indicator.CPU, 30.0)
    assert [(each.name, each.advice) for each in finding.suspects] == [("team/job", "suppress")]


def test_the_correlation_is_that_of_the_formula() -> None:
    (finding,) = play(QUIET + HURT)[-1]
    # All that the suspect does beyond its usual falls into abnormal rounds: 1 - limit / value, with the floor of 5 %.
    assert finding.suspects[0].correlation == pytest.approx(1 - 5 / 30, abs=0.05)
    assert finding.suspects[0].confidence == pytest.approx(finding.suspects[0].correlation)


def test_it_takes_a_minute_to_be_found() -> None:
    found = play(QUIET + HURT)[LEARNED:]
    assert [bool(each) for each in found[:7]] == [False] * 5 + [True] * 2


def test_nothing_is_abnormal_before_the_normal_band_is_known() -> None:
    assert not any(play([(online(pressure=30.0), batch(cpu=6.0))] * 29))


def test_it_is_over_after_a_minute_of_calm() -> None:
    found = play(QUIET + HURT + [QUIET[0]] * 6)[LEARNED + len(HURT) :]
    assert [bool(each) for each in found] == [True] * 5 + [False]


def test_since_when_stays_while_it_lasts() -> None:
    found = play(QUIET + HURT)
    assert found[-1][0].since == found[-2][0].since


@pytest.mark.parametrize(
    ("victim", "why"),
    [
        (online(cpu=3.0, pressure=30.0), "its own load has risen"),
        (online(pressure=30.0, throttled=0.5), "its own limit stops it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_pod_brings_about_itself_is_no_interference(victim: PodReading, why: str) -> None:
    assert play(QUIET + [(victim, batch(cpu=6.0))] * 12)[-1] == [], why


def test_who_is_always_busy_is_no_suspect() -> None:
    (finding,) = play([(online(), batch(cpu=6.0))] * LEARNED + HURT)[-1]
    assert finding.suspects == ()


def test_the_larger_of_two_that_come_together_is_the_first() -> None:
    quiet = [(online(), batch("small"), batch("large"))] * LEARNED
    hurt = [(online(pressure=30.0), batch("small", cpu=0.9), batch("large", cpu=8.0))] * 12
    (finding,) = play(quiet + hurt)[-1]
    assert [each.name for each in finding.suspects] == ["team/large", "team/small"]


def test_a_lasting_antagonist_stays_the_suspect() -> None:
    """After ten minutes there is no normal round left to compare with."""
    (finding,) = play(QUIET + HURT * 8)[-1]
    assert finding.suspects[0].name == "team/job"


@pytest.mark.parametrize(
    ("qos", "indicator", "advice"),
    [
        (QoSClass.BE, Indicator.CPU, "suppress"),
        (QoSClass.LS, Indicator.CPU, "pin"),
        (QoSClass.LS, Indicator.IO, "migrate"),
    ],
)
def test_what_is_advised(qos: QoSClass, indicator: Indicator, advice: str) -> None:
    def victim(value: float) -> PodReading:
        return PodReading("web", "shop/web", "web", QoSClass.LS, 1.0, 1e9, 0.0, 0.0, {indicator: value})

    def other(amount: float) -> PodReading:
        return PodReading("o", "team/o", "o", qos, amount, 1e9, amount * 1e6)

    (finding,) = play([(victim(1.0), other(0.5))] * LEARNED + [(victim(40.0), other(6.0))] * 12)[-1]
    assert finding.suspects[0].advice == advice


def sender(rate: float, lost: float = 0.0, name: str = "web", qos: QoSClass = QoSClass.LS) -> PodReading:
    indicators = {Indicator.RETRANSMITS: lost} if qos is QoSClass.LS else {}
    return PodReading(name, f"shop/{name}", name, qos, 1.0, 1e9, 0.0, 0.0, indicators, rate)


def test_who_sends_more_while_another_has_to_send_again() -> None:
    def job(rate: float) -> PodReading:
        return sender(rate, name="job", qos=QoSClass.BE)

    quiet = [(sender(1e6, 0.1), job(1e6), batch("busy", cpu=0.5))] * LEARNED
    hurt = [(sender(0.7e6, 8.0), job(1e8), batch("busy", cpu=6.0))] * 12
    (finding,) = play(quiet + hurt)[-1]
    assert (finding.indicator, finding.value) == (Indicator.RETRANSMITS, 8.0)
    assert [(each.name, each.advice) for each in finding.suspects] == [("shop/job", "suppress")]


def test_a_pod_whose_own_traffic_has_risen_loses_its_own_packets() -> None:
    quiet, hurt = [(sender(1e6, 0.1), batch())] * LEARNED, [(sender(5e6, 8.0), batch(cpu=6.0))] * 12
    assert play(quiet + hurt)[-1] == []


def test_the_mean_of_the_last_rounds_is_that_of_what_was_measured() -> None:
    detector = InterferenceDetector()
    play([*QUIET, (online(pressure=2.0),), (batch(),), (online(pressure=4.0),)], detector)
    assert detector.mean("web", Indicator.CPU, 3) == 3.0
    assert detector.mean("web", Indicator.IO, 3) is None


def test_cycles_that_are_counted_once_a_minute() -> None:
    def victim(number: int, cycles: float) -> PodReading:
        counted = {Indicator.CYCLES: cycles} if number % 6 == 0 else {}
        return PodReading("web", "shop/web", "web", QoSClass.LSR, 1.0, 1e9, 0.0, 0.0, counted)

    quiet = [(victim(number, 1.0), batch()) for number in range(6 * LEARNED)]
    hurt = [(victim(number, 2.5), batch(cpu=6.0)) for number in range(30)]
    assert [each.suspects[0].name for each in play(quiet + hurt)[-1]] == ["team/job"]


def test_a_reading_that_stays_high_becomes_normal() -> None:
    band = NormalBand(5.0, 1.5)
    for _ in range(40):
        band.learn(1.0)
    assert band.learn(20.0)
    for _ in range(2000):
        band.learn(20.0)
    assert not band.learn(20.0)


def readings() -> st.SearchStrategy[PodReading]:
    amounts = st.one_of(st.none(), st.floats(0, 100))
    return st.builds(
        lambda io, **given: PodReading(io=io, network=io, **given),
        uid=st.sampled_from("abcd"),
        name=st.just("ns/pod"),
        workload=st.sampled_from("xyz"),
        qos=st.sampled_from(list(QoSClass)),
        cpu=amounts,
        memory=amounts,
        io=amounts,
        throttled=amounts,
        indicators=st.dictionaries(st.sampled_from(list(Indicator)), st.floats(0, 100)),
    )


ROUNDS = st.lists(st.lists(readings(), unique_by=lambda reading: reading.uid, max_size=4), min_size=35, max_size=40)


@settings(max_examples=examples(12))
@given(ROUNDS)
def test_whatever_is_read_findings_make_sense(rounds: Sequence[Sequence[PodReading]]) -> None:
    for present, findings in zip(rounds, play(rounds), strict=True):
        pods = {each.uid: each for each in present}
        for finding in findings:
            assert pods[finding.uid].is_latency_sensitive
            assert finding.value > finding.limit >= 0
            for suspect in finding.suspects:
                assert suspect.uid != finding.uid
                assert LEAST_CORRELATION <= suspect.correlation <= 1
                assert 0 <= suspect.confidence <= suspect.correlation


def test_antagonists_of_four_kinds_are_found_and_few_others_named() -> None:
    result = measure(hours=3, nodes=2, seed=5)
    assert result["precision"] >= 0.9
    assert result["recall"]["all"] >= 0.8
