"""Logs the details of each decision that debug flags enable, in the original's formats, by evaluating all nodes once
more: slow, so off by default. The flags are set on the command line and changed over HTTP while the program runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from koordinator.api.annotations import RESERVATION_NAME
from koordinator.api.timestamps import format_time
from koordinator.base.debug_flags import number, set_verbosity
from koordinator.scheduler.engine.class_state import INFEASIBLE
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.framework_hooks import DiagnosisPlugin, QuestionedJob
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView

_INT: Final = range(-(2**63), 2**63)
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_SWITCHES: Final = {"f": "filters", "d": "diagnosis", "db": "blocking"}
"""Short name of a flag -> the field that it sets."""


@dataclass(slots=True)
class DebugSettings:
    """``scores``: how many nodes of each decision to log; ``blocking``: write diagnoses at once."""

    scores: int = 0
    filters: bool = False
    diagnosis: bool = False
    blocking: bool = False

    @property
    def setters(self) -> Mapping[str, Callable[[str], str]]:
        """By the flag's short name; each returns the original's response, or raises ValueError with the original's
        message."""
        return MappingProxyType(
            {
                "v": set_verbosity,
                "s": self._set_scores,
                **{name: partial(self._switch, field) for name, field in _SWITCHES.items()},
            }
        )

    def _set_scores(self, text: str) -> str:
        self.scores = number(text, _INT, f"failed set debugTopNScores {text}: strconv.Atoi")
        return f"successfully set debugTopNScores to {text}"

    def _switch(self, field: str, text: str) -> str:
        # The original's texts for all three flags.
        if text not in _TRUE | _FALSE:
            raise ValueError(
                f'failed set debugFilterFailure {text}: strconv.ParseBool: parsing "{text}": invalid syntax'
            )
        setattr(self, field, text in _TRUE)
        return f"successfully set debugFilterFailure to {text}"


def diagnosis_line(pod: PodInfo, document: dict[str, Any]) -> str:
    """The log line in the original's format."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return f"dump diagnosis for {document['questionedKey']}, targetPod: {pod.key}/{pod.uid}: ${text}"


def diagnosis(
    pod: PodInfo, evaluation: Evaluation, columns: NodeColumns, now: datetime, job: QuestionedJob | None = None
) -> dict[str, Any]:
    """The content of the original's Diagnosis for a pod that no node fits."""
    key = job.key if job is not None else pod.pod.metadata.annotations.get(RESERVATION_NAME, pod.key)
    cause = job.cause if job is not None else ""
    document: dict[str, Any] = {"timestamp": format_time(now), "questionedKey": key}
    if nominated := pod.pod.status.nominated_node_name:
        document["nominatedNode"] = nominated
    refused = evaluation.plan.rejection
    plan = job.plan if job is not None and not cause else None
    if message := cause or (refused[1].text if refused is not None else plan.message if plan is not None else ""):
        document["preFilterMessage"] = message
    if plan is not None and plan.topology_layer:
        document["topologyKeyToExplain"] = plan.topology_layer
    schedule: dict[str, Any] = {"alreadyWaitForBound": 0}
    if job is not None and job.waiting:
        schedule = {
            "alreadyWaitForBound": sum(job.waiting.values()),
            "nodeOfferSlot": dict(sorted(job.waiting.items())),
        }
    if plan is not None:
        schedule["nodeOfferSlot"] = dict(sorted(plan.slots.items()))
        details = _details(
            ((each.plugin, each.reasons), [columns.names[row] for row in each.rows.tolist()]) for each in plan.statuses
        )
    else:
        details = failed_details(pod, evaluation, columns) if not cause else ()
    if details:
        schedule["nodeFailedDetails"] = details
    preempted = job.preemption if job is not None else None
    preemption = {"dryRunFilterDiagnosis": None, "otherDiagnosis": preempted} if preempted is not None else None
    return {**document, "isRootCausePod": not cause, "scheduleDiagnosis": schedule, "preemptionDiagnosis": preemption}


def failed_details(pod: PodInfo, evaluation: Evaluation, columns: NodeColumns) -> Sequence[dict[str, Any]]:
    """The rejected nodes by (plugin, reason, whether eviction might help), in that order."""
    return _details(
        (
            (failure.plugin.name, failure.reasons(pod)),
            [columns.names[row] for row in failure.rows.tolist()],
        )
        for failure in (evaluation.failures() if evaluation.plan.rejection is None else ())
    )


def _details(failed: Iterable[tuple[tuple[str, Sequence[Reason]], list[str]]]) -> Sequence[dict[str, Any]]:
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for (plugin, reasons), nodes in failed:
        might_help = not any(reason.unresolvable for reason in reasons)
        groups.setdefault((plugin, ", ".join(reason.text for reason in reasons), might_help), []).extend(nodes)
    return [
        {"failedPlugin": plugin, "reason": reason, "preemptMightHelp": might_help, "failedNodes": sorted(nodes)}
        for (plugin, reason, might_help), nodes in sorted(
            groups.items(), key=lambda item: (item[0][0], item[0][1], not item[0][2])
        )
    ]


def score_lines(evaluation: Evaluation, columns: NodeColumns, key: str, chosen: str, count: int) -> Iterator[str]:
    """The heading and the rows of the table for the pod ``key``; nothing when no node is feasible."""
    totals = evaluation.totals[: columns.size]
    order = np.argsort(-totals, kind="stable").tolist()
    feasible = [row for row in order if totals[row] != INFEASIBLE]
    if not feasible:
        return
    # Among equals, the chosen node comes first.
    feasible.sort(key=lambda row: (-int(totals[row]), columns.names[row] != chosen, columns.names[row]))
    names = evaluation.score_names
    yield f"Top{count} scores for Pod: {key}, feasibleNodes: {len(feasible)}, plugins:[{' '.join(names)}]"
    first = feasible[:count]
    rows = list(zip([columns.names[row] for row in first], evaluation.scores_of(first), strict=True))
    yield from markdown(key, names, rows)


def markdown(key: str, plugins: Sequence[str], rows: Iterable[tuple[str, Sequence[int]]]) -> Iterator[str]:
    """Lines of the table; ``rows`` are nodes with a score for each of ``plugins``."""
    yield _line(("#", "Pod", "Node", "Score", *plugins))
    yield f"| --- | --- | --- | ---:|{' ---:|' * len(plugins)}"
    for place, (node, scores) in enumerate(rows):
        yield _line((place, key, node, sum(scores), *scores))


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


logger = logging.getLogger(__name__)


class DebugOutput:
    """``decided`` must be called between a decision and its execution, when any of the settings is on."""

    def __init__(
        self, view: ClusterView, settings: DebugSettings, now: Callable[[], datetime], *, queue_size: int = 1000
    ) -> None:
        self.settings = settings
        self._view = view
        self._now = now
        self._diagnoses: asyncio.Queue[tuple[PodInfo, dict[str, Any]]] = asyncio.Queue(max(1, queue_size))

    def decided(self, pod: PodInfo, profile: Profile, result: Placement | Rejection) -> None:
        """Log one decision. Never raises."""
        try:
            self._decided(pod, profile, result)
        except Exception:
            # Plugins run again here; their errors must not end an attempt that has succeeded.
            logger.exception("debug output about pod %s failed", pod.key)

    async def run(self) -> None:
        """Write the queued diagnoses, until cancelled."""
        while True:
            logger.info("%s", diagnosis_line(*await self._diagnoses.get()))

    def _decided(self, pod: PodInfo, profile: Profile, result: Placement | Rejection) -> None:
        settings, columns = self.settings, self._view.columns
        evaluation = Evaluation(profile, self._view, pod)
        evaluation.refresh()
        if settings.filters and evaluation.plan.rejection is None:
            self._log_failures(pod, evaluation)
        if settings.scores > 0 and isinstance(result, Placement):
            for line in score_lines(evaluation, columns, pod.key, result.node_name, settings.scores):
                logger.info("%s", line)
        if settings.diagnosis and isinstance(result, Rejection):
            first = profile.first(DiagnosisPlugin)
            job = first.questioned_job(pod) if first is not None else None
            self._dump(pod, diagnosis(pod, evaluation, columns, self._now(), job))

    def _log_failures(self, pod: PodInfo, evaluation: Evaluation) -> None:
        names = self._view.columns.names
        for failure in evaluation.failures():
            reasons = ", ".join(reason.text for reason in failure.reasons(pod))
            for row in failure.rows.tolist():
                logger.info(
                    'Failed to filter for Pod "%s" on Node "%s" (pass 0), failedPlugin: %s, reason: %s',
                    *(pod.key, names[row], failure.plugin.name, reasons),
                )

    def _dump(self, pod: PodInfo, document: dict[str, Any]) -> None:
        if self.settings.blocking:
            logger.info("%s", diagnosis_line(pod, document))
            return
        try:
            self._diagnoses.put_nowait((pod, document))
        except asyncio.QueueFull:
            logger.warning("Diagnosis queue is full, dropping diagnosis for %s", document["questionedKey"])
