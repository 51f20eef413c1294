"""The details that a plugin can add to the reasons in events, for explanations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class Lack:
    """What a node lacks for the plugin to let the pod pass: ``cpu: needs 4, free 2.5``."""

    text: str
    shortfall: float = 1.0
    """The missing share of what is needed, by which nodes are ordered."""


class Explainer(Plugin):
    """A Filter plugin that derives from this adds details to ``koord explain``. Both methods are called only for
    that."""

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        """What is missing on ``row``, for which ``filter`` returned ``code`` (not FEASIBLE); empty when there is
        nothing to add to the reasons."""
        return ()

    def node_facts(self, row: int) -> Mapping[str, Any] | None:
        """The plugin's own facts about the node, beyond those of the Node object, as a JSON object; None for none."""
        return None
