"""Which remedy is in force, when, and what is remembered of it: one case from blame to release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.qos import QoSClass
from koordinator.koordlet.enforce.strategies.interference_cases import (
    REST,
    Case,
    Hold,
    Remedy,
    Result,
    Terms,
    blame,
    next_case,
)
from koordinator.koordlet.observe.interference.detection import Finding, Indicator, Suspect
from tests.examples import examples

CAP, PIN, MIGRATE = Remedy
SUSPECT = Suspect("uid-job", "team/job", QoSClass.BE, 0.9, 0.8, "suppress")
FINDING = Finding("uid-web", "shop/web", Indicator.CPU, datetime(2026, 3, 1, tzinfo=UTC), 30.0, 2.0, 5.0, (SUSPECT,))
WINDOW, CALM, ROUND = 60.0, 300.0, 10.0


@dataclass
class Played:
    """A case, round after round. ``offers`` are holds but for the remedies that the test gives a text or None."""

    order: tuple[Remedy, ...] = (CAP, PIN)
    offers: Mapping[Remedy, str | None] = field(default_factory=dict)
    now: float = 1_000.0
    case: Case | None = None

    def play(self, seconds: float, signal: float | None, *, blamed: bool = True) -> Played:
        for _ in range(round(seconds / ROUND)):
            self.now += ROUND
            if blamed:
                self.case = blame(self.case, FINDING, self.now)
            if self.case is not None:
                self.case = next_case(self.case, signal, Terms(self.order, WINDOW, CALM), self._offer, self.now)
        return self

    def _offer(self, remedy: Remedy) -> Hold | str | None:
        return self.offers.get(remedy, Hold(f"a {remedy}")) if remedy in self.offers else Hold(f"a {remedy}")

    @property
    def in_force(self) -> Remedy | None:
        trial = self.case.in_force if self.case is not None else None
        return trial.remedy if trial is not None else None

    @property
    def results(self) -> list[tuple[Remedy, Result]]:
        return [(each.remedy, each.result) for each in self.case.trials] if self.case is not None else []


def test_the_first_remedy_begins_with_the_blame() -> None:
    assert Played().play(ROUND, 30.0).results == [(CAP, Result.TRYING)]


@pytest.mark.parametrize("signal", [None, 4.0], ids=["not measured", "normal just now"])
def test_nothing_begins_while_the_victim_does_not_suffer(signal: float | None) -> None:
    assert Played().play(600, signal).results == []


def test_what_helps_is_kept_with_what_it_has_brought() -> None:
    played = Played().play(ROUND, 30.0).play(600, 10.0)
    assert played.results == [(CAP, Result.HELPS)]
    assert played.case is not None
    assert (played.case.trials[0].before, played.case.trials[0].after) == (30.0, 10.0)


def test_it_is_not_measured_before_its_window_is_over() -> None:
    played = Played().play(ROUND, 30.0)
    assert played.play(WINDOW - ROUND, 1.0).results == [(CAP, Result.TRYING)]
    assert played.play(ROUND, 1.0).results == [(CAP, Result.HELPS)]


def test_what_brings_less_than_half_is_undone_and_the_next_one_tried() -> None:
    played = Played().play(ROUND, 30.0).play(WINDOW, 16.1)
    assert played.results == [(CAP, Result.TOO_LITTLE), (PIN, Result.TRYING)]
    assert played.in_force is PIN


def test_half_of_what_is_beyond_normal_is_enough() -> None:
    assert Played().play(ROUND, 30.0).play(WINDOW, 16.0).results == [(CAP, Result.HELPS)]


def test_all_three_are_tried_in_their_order() -> None:
    played = Played((CAP, PIN, MIGRATE)).play(ROUND + 2 * WINDOW, 30.0)
    assert played.results == [(CAP, Result.TOO_LITTLE), (PIN, Result.TOO_LITTLE), (MIGRATE, Result.TRYING)]


def test_the_node_slo_may_have_another_order() -> None:
    assert Played((PIN, CAP)).play(ROUND, 30.0).in_force is PIN


def test_what_is_not_possible_is_remembered_and_left_out() -> None:
    played = Played(offers={CAP: "the network is not shared out"}).play(ROUND, 30.0)
    assert played.results == [(CAP, Result.NOT_POSSIBLE), (PIN, Result.TRYING)]


def test_what_is_not_known_yet_is_waited_for() -> None:
    played = Played(offers={CAP: None}).play(600, 30.0)
    assert played.results == []
    played.offers = {}
    assert played.play(ROUND, 30.0).in_force is CAP


def test_where_none_helps_the_suspect_is_left_alone_for_an_hour() -> None:
    played = Played().play(ROUND + 2 * WINDOW, 30.0)
    assert played.play(REST - ROUND, 30.0).in_force is None
    assert played.play(ROUND, 30.0).in_force is CAP


def test_what_helps_no_more_gives_way_to_the_next_one() -> None:
    played = Played().play(ROUND, 30.0).play(WINDOW, 5.0)
    assert played.play(WINDOW, 30.0).results == [(CAP, Result.TOO_LITTLE), (PIN, Result.TRYING)]


def test_a_cap_is_taken_back_step_by_step() -> None:
    played = Played().play(ROUND, 30.0).play(WINDOW, 5.0)
    steps = []
    for _ in range(3):
        played.play(CALM, 2.0, blamed=False)
        assert played.case is not None
        steps.append((played.in_force, played.case.steps_back))
    assert steps == [(CAP, 1), (CAP, 2), (None, 0)]
    assert played.results == [(CAP, Result.RELEASED)]


def test_a_pin_is_taken_back_at_once() -> None:
    played = Played((PIN,)).play(ROUND, 30.0).play(WINDOW, 5.0)
    assert played.play(CALM, 2.0, blamed=False).results == [(PIN, Result.RELEASED)]


def test_who_is_blamed_while_it_is_taken_back_gets_all_of_it_again() -> None:
    played = Played().play(ROUND, 30.0).play(WINDOW, 5.0).play(CALM, 2.0, blamed=False)
    assert played.play(ROUND, 30.0).case is not None
    assert (played.in_force, played.case and played.case.steps_back) == (CAP, 0)
    assert played.results == [(CAP, Result.HELPS)]


def test_what_has_helped_comes_first_the_next_time() -> None:
    played = Played().play(ROUND, 30.0).play(WINDOW, 30.0).play(WINDOW, 5.0).play(CALM, 2.0, blamed=False)
    assert played.results == [(CAP, Result.TOO_LITTLE), (PIN, Result.RELEASED)]
    assert played.play(ROUND, 30.0).in_force is PIN


def test_what_cannot_be_measured_is_not_held_for_ever() -> None:
    played = Played().play(ROUND, 30.0).play(WINDOW + CALM - ROUND, None)
    assert played.in_force is CAP
    assert played.play(ROUND, None).results == [(CAP, Result.NOT_MEASURED)]


def test_a_remedy_that_the_node_slo_takes_away_ends_at_once() -> None:
    played = Played().play(ROUND, 30.0)
    played.order = (PIN,)
    assert played.play(ROUND, 30.0, blamed=False).results == [(CAP, Result.RELEASED)]


def test_an_eviction_that_helped_is_over() -> None:
    played = Played((MIGRATE,)).play(ROUND, 30.0).play(WINDOW, 2.0, blamed=False)
    assert (played.results, played.in_force) == ([(MIGRATE, Result.HELPS)], None)


def test_what_is_over_is_forgotten_after_an_hour() -> None:
    played = Played((PIN,)).play(ROUND, 30.0).play(WINDOW, 5.0).play(CALM, 2.0, blamed=False)
    assert played.play(REST - ROUND, 2.0, blamed=False).case is not None
    assert played.play(ROUND, 2.0, blamed=False).case is None


ROUNDS = st.lists(st.tuples(st.booleans(), st.sampled_from([None, 2.0, 10.0, 30.0, 90.0])), max_size=80)


@settings(max_examples=examples(60))
@given(ROUNDS, st.permutations(list(Remedy)), st.sets(st.sampled_from(list(Remedy))))
def test_whatever_happens_at_most_one_is_in_force_and_none_for_ever(
    rounds: list[tuple[bool, float | None]], order: list[Remedy], impossible: set[Remedy]
) -> None:
    played = Played(tuple(order), dict.fromkeys(impossible, "no"))
    for is_blamed, signal in rounds:
        played.play(3 * ROUND, signal, blamed=is_blamed)
        trials = played.case.trials if played.case is not None else ()
        assert len({each.remedy for each in trials}) == len(trials)
        assert all(not each.is_in_force for each in trials[:-1])
        assert all(each.remedy not in impossible for each in trials if each.is_in_force)
    played.play(2 * WINDOW + 4 * CALM, 2.0, blamed=False)
    assert played.in_force is None
