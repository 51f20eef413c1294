"""The policy that is enforced: the node's NodeSLO, less the sections that hold invalid values, and what its CPUs count.

koord-manager and its webhook check what a user writes, but a NodeSLO can be written past them. A section with a value
out of its bounds is not used: what it said when it was last valid stays in force, else the agent's defaults, and the
values are named in an event of the NodeSLO.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from koordinator.api.annotations import CPU_NORMALIZATION_RATIO
from koordinator.api.codec import DecodeError, convert
from koordinator.api.meta import EXTENSIONS_MEMBER, WireStruct
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.base.feature_gates import FeatureGates
from koordinator.koordlet import features
from koordinator.koordlet.enforce.strategies.interference_cases import Remedy
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.model.overcommit.ratios import RatioError, read_normalization
from koordinator.model.slo_configuration.complete_node_slo import complete_node_slo_spec
from koordinator.model.slo_configuration.field_ranges import range_errors

logger = logging.getLogger(__name__)

_SECTIONS: Final = {
    "resource_used_threshold_with_be": "resourceUsedThresholdWithBE",
    "resource_qos_strategy": "resourceQOSStrategy",
    "cpu_burst_strategy": "cpuBurstStrategy",
    "system_strategy": "systemStrategy",
}


INTERFERENCE: Final = "interference"
"""The key among the extensions of the NodeSLO."""
_Percent = Annotated[int, msgspec.Meta(ge=1, le=100)]


class InterferenceStrategy(WireStruct):
    """What is done about pods that disturb others; nothing unless ``suppress`` says so."""

    suppress: bool = False
    """Whether best-effort pods that disturb others are held back."""
    remedies: Annotated[tuple[Remedy, ...], msgspec.Meta(max_length=len(Remedy))] = (Remedy.CAP, Remedy.PIN)
    """What is tried, in this order."""
    window_seconds: Annotated[int, msgspec.Meta(ge=10, le=3600)] = 60
    """For how long each is held before it is known what it has brought."""
    cap_percent: _Percent = 50
    """What is left to one of the CPU usage, or of the bandwidth, that it had."""
    cap_seconds: Annotated[int, msgspec.Meta(ge=10, le=86_400)] = 300
    """For how long after it was blamed last a remedy is not taken back, nor a further step."""
    confidence_percent: _Percent = 50
    """From which confidence on."""


class EnforcedPolicy:
    """Call ``accept`` with every NodeSLO, completed with the agent's defaults. ``enables_nothing``: it stays at these,
    which switch everything off, whatever the NodeSLO says."""

    def __init__(self, *, enables_nothing: bool = False) -> None:
        self._defaults = complete_node_slo_spec(NodeSLOSpec())
        self._is_fixed = enables_nothing
        self.spec: NodeSLOSpec | None = self._defaults if enables_nothing else None
        """What is in force; None until there was a NodeSLO."""
        self.interference = InterferenceStrategy()
        """The part of the extensions that is koordlet's own."""

    def accept(self, spec: NodeSLOSpec) -> tuple[str, ...]:
        """Take what is valid of it. The result names each invalid section, its fields and what is allowed."""
        if self._is_fixed:
            return ()
        invalid: list[str] = []
        last_good = self.spec or self._defaults
        kept: dict[str, Any] = {}
        for name, wire_name in _SECTIONS.items():
            section = getattr(spec, name)
            errors = range_errors(section, section, wire_name) if section is not None else {}
            if errors:
                invalid.append(_unused(wire_name, errors))
                kept[name] = getattr(last_good, name)
        self.spec = msgspec.structs.replace(spec, **kept)
        try:
            members = (spec.extensions or {}).get(EXTENSIONS_MEMBER) or {}
            own = members.get(INTERFERENCE) or {} if isinstance(members, dict) else members
            self.interference = convert(own, InterferenceStrategy)
        except DecodeError as error:
            path = f"extensions.{EXTENSIONS_MEMBER}.{INTERFERENCE}"
            invalid.append(_unused(path, {path: str(error)}))
        return tuple(invalid)


def _unused(section: str, errors: Mapping[str, str]) -> str:
    what = "; ".join(f"{path}: {text}" for path, text in sorted(errors.items()))
    return f"spec.{section} is not used, what it said before stays in force: {what}"


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
            self._last = read_normalization(node.metadata.annotations.get(CPU_NORMALIZATION_RATIO))
            self._bad = ""
        except RatioError as error:
            if str(error) != self._bad:
                logger.warning("the Node's %s; the ratio stays %s", error, self._last)
            self._bad = str(error)
        return self._last
