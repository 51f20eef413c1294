"""The CPU normalization ratio that the agent goes by, as the Node's annotation changes and is mistyped."""

from __future__ import annotations

import logging

from koordinator.base.feature_gates import FeatureGates
from koordinator.koordlet import features
from koordinator.koordlet.enforce.hooks.contexts import HookError
from koordinator.koordlet.enforce.hooks.cpu_normalization import normalization_ratio
from koordinator.koordlet.pods.states import StatesInformer

logger = logging.getLogger(__name__)


class NormalizationRatio:
    """How many plain cores a core of the node is worth; one that cannot be read leaves the last good one."""

    def __init__(self, states: StatesInformer, gates: FeatureGates) -> None:
        self._states = states
        self._is_enabled = gates.enabled(features.CPU_NORMALIZATION)
        self._last: float | None = None
        self._bad = ""

    def __call__(self) -> float | None:
        """None where limits are not normalised."""
        node = self._states.node
        if not self._is_enabled or node is None:
            return None
        try:
            self._last, self._bad = normalization_ratio(node), ""
        except HookError as error:
            if str(error) != self._bad:
                logger.warning("%s; the ratio stays %s", error, self._last)
            self._bad = str(error)
        return self._last
