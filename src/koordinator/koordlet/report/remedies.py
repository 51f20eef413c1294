"""What users see of remedies against interference: events of the suspects with a record for the audit, a metric, and
what the NodeMetric says of the victims."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from koordinator.api.modification import REMEDIED, Cause, Modification
from koordinator.api.nodemetric import INTERFERENCE_REMEDIES
from koordinator.api.timestamps import format_time
from koordinator.base.clock import Clock
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.enforce.strategies.interference_cases import Case, Result, Trial
from koordinator.koordlet.enforce.strategies.interference_remedies import OWNER, RemedyState
from koordinator.koordlet.enforce.strategies.snapshot import pod_reference
from koordinator.kube.events import EventRecorder

_REASONS: Final = {
    Result.TRYING: "InterferenceRemedyTried",
    Result.HELPS: "InterferenceRemedyHelps",
    Result.TOO_LITTLE: "InterferenceRemedyUndone",
    Result.NOT_MEASURED: "InterferenceRemedyUndone",
    Result.RELEASED: "InterferenceRemedyReleased",
}
"""Of events; that a remedy is not possible is in the NodeMetric alone."""


class RemedyReport:
    """Call ``observe`` with each state that follows on another one."""

    def __init__(self, node_name: str, events: EventRecorder, metrics: AgentMetrics, clock: Clock) -> None:
        self._node_name = node_name
        self._events = events
        self._clock = clock
        self._state = RemedyState()
        self._count = metrics.counter(
            "interference_remedies",
            "Number of remedies against pods that disturb others, by what has become of them",
            ("remedy", "result"),
        )

    def observe(self, state: RemedyState) -> None:
        """What has begun, was measured or has ended since the last state."""
        before = self._state
        self._state = state
        for key, case in state.cases.items():
            known = before.cases[key].trials if key in before.cases else ()
            for trial in case.trials:
                same = next((each for each in known if each.remedy is trial.remedy and each.began == trial.began), None)
                if same is None or same.result is not trial.result:
                    self._report(case, trial)

    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        """By uid of a victim, what its entry of the NodeMetric says of it, by key."""
        found: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for case in self._state.cases.values():
            for trial in case.trials:
                found.setdefault(case.victim, {INTERFERENCE_REMEDIES: []})[INTERFERENCE_REMEDIES].append(
                    self._document(case, trial)
                )
        return found

    def _report(self, case: Case, trial: Trial) -> None:
        self._count.inc(trial.remedy.value, trial.result.value)
        reason = _REASONS.get(trial.result)
        if reason is None:
            return
        numbers = {"before": trial.before} | ({} if trial.after is None else {"after": trial.after})
        text = sentence(case, trial)
        record = Modification(
            action=REMEDIED,
            actor=OWNER,
            node=self._node_name,
            cause=Cause(code=trial.remedy.value, text=text),
            numbers={name: round(value, 3) for name, value in numbers.items()},
        )
        namespace, _, name = case.suspect_name.partition("/")
        suspect = pod_reference(namespace, name, case.suspect)
        self._events.event(suspect, "Normal", reason, "Enforcing", text, modification=record)

    def _document(self, case: Case, trial: Trial) -> dict[str, Any]:
        ago = timedelta(seconds=self._clock.monotonic() - trial.began)
        after = {} if trial.after is None else {"after": round(trial.after, 2)}
        return {
            "suspect": case.suspect_name,
            "indicator": case.indicator.value,
            "remedy": trial.remedy.value,
            "what": trial.hold.text,
            "since": format_time(self._clock.now() - ago),
            "before": round(trial.before, 2),
            **after,
            "result": trial.result.value,
        }


def sentence(case: Case, trial: Trial) -> str:
    """What an event says: ``cap (2.00 of 4.00 cores), since it disturbs shop/web: cpu-pressure from 42.1 to 9.0``."""
    text = f"{trial.remedy} ({trial.hold.text}), since it disturbs {case.victim_name}: {case.indicator} "
    match trial.result:
        case Result.TRYING:
            return text + f"is {trial.before:.1f}, normally {case.normal:.1f}"
        case Result.NOT_MEASURED:
            return text + f"was {trial.before:.1f}, and could not be measured since; undone"
    end = {Result.TOO_LITTLE: "; that is too little, undone", Result.RELEASED: "; taken back"}.get(trial.result, "")
    since = "" if trial.after is None else f" before, {trial.after:.1f} with it"
    return text + f"was {trial.before:.1f}{since}{end}"
