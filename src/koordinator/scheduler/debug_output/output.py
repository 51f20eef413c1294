"""Logs what the debug flags ask for about each decision, by evaluating all nodes once more: slow, and only on
demand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from koordinator.scheduler.debug_output.diagnosis import diagnosis, diagnosis_line
from koordinator.scheduler.debug_output.scores import score_lines
from koordinator.scheduler.debug_output.settings import DebugSettings
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView

logger = logging.getLogger(__name__)


class DebugOutput:
    """``decided`` is to be called between a decision and what is done about it, when ``settings.active``."""

    def __init__(
        self, view: ClusterView, settings: DebugSettings, now: Callable[[], datetime], *, queue_size: int = 1000
    ) -> None:
        self.settings = settings
        self._view = view
        self._now = now
        self._diagnoses: asyncio.Queue[tuple[PodInfo, dict[str, Any]]] = asyncio.Queue(max(1, queue_size))

    def decided(self, pod: PodInfo, profile: Profile, result: Placement | Rejection) -> None:
        """Log about one decision. Never fails."""
        try:
            self._decided(pod, profile, result)
        except Exception:
            # Plugins are asked again here; what they raise must not end an attempt that has succeeded.
            logger.exception("debug output about pod %s failed", pod.key)

    async def run(self) -> None:
        """Write the diagnoses that wait, until cancelled."""
        while True:
            logger.info("%s", diagnosis_line(*await self._diagnoses.get()))

    def _decided(self, pod: PodInfo, profile: Profile, result: Placement | Rejection) -> None:
        settings, columns = self.settings, self._view.columns
        evaluation = Evaluation(profile, columns, pod)
        evaluation.refresh()
        if settings.filters and evaluation.plan.rejection is None:
            self._log_failures(pod, evaluation)
        if settings.scores > 0 and isinstance(result, Placement):
            for line in score_lines(evaluation, columns, pod.key, result.node_name, settings.scores):
                logger.info("%s", line)
        if settings.diagnosis and isinstance(result, Rejection):
            self._dump(pod, diagnosis(pod, evaluation, columns, self._now()))

    def _log_failures(self, pod: PodInfo, evaluation: Evaluation) -> None:
        names = self._view.columns.names
        for failure in evaluation.failures():
            reasons = ", ".join(reason.text for reason in failure.plugin.reasons(pod, failure.state, failure.code))
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
