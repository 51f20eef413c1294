"""The feature gates of koord-descheduler."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from koordinator.base.feature_gates import Feature, FeatureGates, Stage

NODE_DRAIN: Final = "NodeDrain"
"""Whether DrainNodes and DrainNodeGroups are carried out."""
DISABLE_PVC_RESERVATION: Final = "DisablePVCReservation"
"""Whether Reservations for migrations leave out volumes that would have to be claimed."""
_DRAINING: Final = "MigrationController"
GATES: Final[Mapping[str, Feature]] = {
    NODE_DRAIN: Feature(default=False, stage=Stage.ALPHA),
    DISABLE_PVC_RESERVATION: Feature(default=False, stage=Stage.BETA),
}


def enabled_gates(values: Mapping[str, bool]) -> frozenset[str]:
    """The gates that are on, with these set; names that are not known here are left out."""
    gates = FeatureGates(GATES)
    gates.set({name: value for name, value in values.items() if name in GATES or name in ("AllAlpha", "AllBeta")})
    return frozenset(name for name in GATES if gates.enabled(name))


def remarks(gates: Collection[str], plugins: Collection[str]) -> list[str]:
    """What the gates that are on will not do with these plugins, in sentences."""
    if NODE_DRAIN not in gates or _DRAINING in plugins:
        return []
    return [f"feature gate {NODE_DRAIN} has no effect: no profile has {_DRAINING}, which carries DrainNodes out"]
