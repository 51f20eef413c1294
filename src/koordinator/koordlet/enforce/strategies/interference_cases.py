"""One pod disturbs another one: which remedy is tried against it, what it has brought, and when the next one is.

A case is a victim, its indicator and a suspect. Its remedies are tried in order. Each is held for a window and then
measured: one that takes away half of what the victim suffers beyond its normal stays, is measured again in each window
in which the suspect is blamed, and is taken back step by step once nobody blames it; one that brings less is undone,
and the next one tried. Where none has helped, the suspect is left alone for an hour.

Pure: a case, what was measured and the time in, the next case out. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from koordinator.koordlet.observe.interference.detection import Finding, Indicator

LEAST_EFFECT: Final = 0.5
"""The share of what the victim suffers beyond its normal that a remedy has to take away."""
REST: Final = 3600.0
"""Seconds after which everything is tried again, and after which what is over is forgotten."""


class Remedy(StrEnum):
    """The values are those of the NodeSLO, of events and of the NodeMetric."""

    CAP = "cap"
    """It keeps a part of the CPU usage, or of the bandwidth, that it had."""
    PIN = "pin"
    """It keeps off the caches, or at least the cores, of the victim."""
    MIGRATE = "migrate"
    """It is evicted, so that it is scheduled again."""


class Result(StrEnum):
    """What has become of a remedy."""

    TRYING = "trying"
    HELPS = "helps"
    TOO_LITTLE = "tooLittle"
    """It has brought too little, and was undone."""
    NOT_MEASURED = "notMeasured"
    """The victim could not be measured meanwhile; undone."""
    NOT_POSSIBLE = "notPossible"
    RELEASED = "released"
    """It had helped, and was taken back after the suspect was blamed no more."""


_FAILED: Final = frozenset({Result.TOO_LITTLE, Result.NOT_MEASURED, Result.NOT_POSSIBLE})
_HELPED: Final = frozenset({Result.HELPS, Result.RELEASED})
STEPS_BACK: Final = {Remedy.CAP: 2}
"""In how many steps a remedy is taken back before it ends: a cap doubles in each."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What a remedy does to the suspect; what it does not limit is None. ``quota`` in microseconds for each 100 ms,
    ``bandwidth`` in bits per second."""

    text: str
    quota: int | None = None
    bandwidth: int | None = None
    cpus: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A remedy that was tried. ``before`` and ``after`` are the means of the victim's indicator over a window."""

    remedy: Remedy
    hold: Hold
    began: float
    before: float
    after: float | None = None
    result: Result = Result.TRYING
    ended: float | None = None
    """None while it is in force."""

    @property
    def is_in_force(self) -> bool:
        """A pod that was evicted does not come back."""
        return self.result is Result.TRYING or (self.result is Result.HELPS and self.remedy is not Remedy.MIGRATE)


@dataclass(frozen=True, slots=True)
class Case:
    """``victim`` and ``suspect`` are UIDs, the names have their namespaces. ``normal`` and ``limit`` are the mean and
    the end of the victim's normal band when it suffered last."""

    victim: str
    suspect: str
    indicator: Indicator
    victim_name: str
    suspect_name: str
    normal: float
    limit: float
    blamed_at: float
    """When the suspect was blamed last."""
    changed_at: float
    """When the remedy in force began, was measured or was taken back a step; else when there was one last."""
    trials: tuple[Trial, ...] = ()
    """The last one of each remedy, in the order in which they began."""
    steps_back: int = 0
    """So many of the one in force."""

    @property
    def in_force(self) -> Trial | None:
        return self.trials[-1] if self.trials and self.trials[-1].is_in_force else None

    @property
    def has_helped(self) -> bool:
        """Whether the last remedy has, and may be held again: who suffers again when it is taken back suffers from the
        suspect, even if that does no more than while it was held back, and so is blamed by nobody."""
        last = self.trials[-1] if self.trials else None
        return last is not None and last.result in _HELPED and last.remedy is not Remedy.MIGRATE

    @property
    def key(self) -> tuple[str, str, Indicator]:
        return self.victim, self.suspect, self.indicator


Offer = Callable[[Remedy], Hold | str | None]
"""What a remedy would do to the suspect; a text says why it is not possible; None: that is not known just now."""


@dataclass(frozen=True, slots=True)
class Terms:
    """``order`` is that of the remedies; ``window`` is for how long one is held before it is measured, and ``calm`` for
    how long after the last blame it is not taken back, in seconds."""

    order: Sequence[Remedy]
    window: float
    calm: float


def blame(known: Case | None, finding: Finding, now: float) -> Case:
    """The case of the finding's first suspect, which is blamed now; ``known`` where there is one, whoever is named."""
    if known is not None:
        changed_at = now if known.steps_back else known.changed_at
        return replace(
            known, normal=finding.normal, limit=finding.limit, blamed_at=now, changed_at=changed_at, steps_back=0
        )
    first = finding.suspects[0]
    names = finding.name, first.name
    return Case(finding.uid, first.uid, finding.indicator, *names, finding.normal, finding.limit, now, now)


def next_case(case: Case, signal: float | None, terms: Terms, offer: Offer, now: float) -> Case | None:
    """``signal`` is the mean of the victim's indicator over the last window, None where it was not measured. None when
    there is nothing left to remember of the case."""
    trial = case.in_force
    is_blamed = case.blamed_at >= now
    if trial is None:
        if not is_blamed and now - case.changed_at >= REST:
            return None
        return _begun(case, signal, terms, offer, now) if is_blamed else case
    if trial.remedy not in terms.order:
        return _with(case, replace(trial, result=Result.RELEASED), now)
    if now - case.changed_at < terms.window:
        return case
    if trial.result is Result.TRYING or is_blamed:
        return _measured(case, trial, signal, terms, offer, now)
    return _taken_back(case, trial, terms, now)


def effect(trial: Trial, normal: float, signal: float) -> float:
    """The share of what the victim suffered beyond its normal that is gone; below 0 where it suffers more."""
    excess = trial.before - normal
    return (trial.before - signal) / excess if excess > 0 else 0.0


def _begun(case: Case, signal: float | None, terms: Terms, offer: Offer, now: float) -> Case:
    """With the first remedy that has not failed yet, while the victim suffers."""
    if signal is None or signal <= case.limit:
        return case
    if case.trials and now - case.changed_at >= REST:
        case = replace(case, trials=())
    failed = {each.remedy for each in case.trials if each.result in _FAILED}
    for remedy in terms.order:
        if remedy in failed:
            continue
        hold = offer(remedy)
        if hold is None:
            break
        if isinstance(hold, str):
            case = _with(case, Trial(remedy, Hold(hold), now, signal, result=Result.NOT_POSSIBLE), now)
        else:
            return _with(case, Trial(remedy, hold, now, signal), now)
    return case


def _measured(case: Case, trial: Trial, signal: float | None, terms: Terms, offer: Offer, now: float) -> Case:
    if signal is None:
        # What cannot be measured is not held for ever.
        is_late = trial.result is Result.TRYING and now - case.changed_at >= terms.window + terms.calm
        return _with(case, replace(trial, result=Result.NOT_MEASURED), now) if is_late else case
    helps = signal <= case.limit or effect(trial, case.normal, signal) >= LEAST_EFFECT
    case = _with(case, replace(trial, after=signal, result=Result.HELPS if helps else Result.TOO_LITTLE), now)
    return case if helps else _begun(case, max(signal, trial.before), terms, offer, now)


def _taken_back(case: Case, trial: Trial, terms: Terms, now: float) -> Case:
    if now - max(case.blamed_at, case.changed_at) < terms.calm:
        return case
    if case.steps_back < STEPS_BACK.get(trial.remedy, 0):
        return replace(case, steps_back=case.steps_back + 1, changed_at=now)
    return _with(case, replace(trial, result=Result.RELEASED), now)


def _with(case: Case, trial: Trial, now: float) -> Case:
    others = tuple(each for each in case.trials if each.remedy is not trial.remedy)
    trial = trial if trial.is_in_force else replace(trial, ended=now)
    return replace(case, trials=(*others, trial), changed_at=now, steps_back=0)
