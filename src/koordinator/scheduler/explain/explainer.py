"""What a plugin may say about a node beyond the reasons that events name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class Lack:
    """What a node would have to have for the plugin to let the pod pass: ``cpu: needs 4, free 2.5``."""

    text: str
    shortfall: float = 1.0
    """How far away that is, as a share of what is needed: what orders nodes by closeness."""


class Explainer(Plugin):
    """A Filter plugin that derives from this explains itself to ``koord explain``. Both methods are asked only then."""

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        """What is missing on ``row``, which ``filter`` answered with ``code`` (not FEASIBLE); empty when there is
        nothing to add to the reasons."""
        return ()

    def node_facts(self, row: int) -> Mapping[str, Any] | None:
        """What the plugin knows of the node beside what everybody knows, as a JSON object; None for nothing."""
        return None
