"""How far a node's co-location is taken back while its online pods suffer: one key of the SLO ConfigMap, and the
annotation of a Node in which its present level stands. The original has neither, and ignores both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from koordinator.api.annotations import ADAPTIVE_SLO
from koordinator.api.codec import decode_or
from koordinator.api.constraints import Admission, Percent, Schema
from koordinator.api.meta import WireStruct
from koordinator.api.timestamps import Time

MOST_STEPS: Final = 10
_DAY: Final = 86_400


class AdaptiveSLOStrategy(WireStruct):
    """A floor is the value at the last step. One that is not below what is configured changes nothing."""

    enable: bool | None = None
    """Whether nodes are adapted at all."""
    steps: Annotated[int | None, Schema(minimum=1, maximum=MOST_STEPS), Admission(minimum=1, maximum=MOST_STEPS)] = None
    """In how many equal steps the floors are reached."""
    hold_seconds: Annotated[int | None, Schema(minimum=1, maximum=_DAY), Admission(minimum=1, maximum=_DAY)] = None
    """The least time between two steps."""
    recover_seconds: Annotated[int | None, Schema(minimum=1, maximum=_DAY), Admission(minimum=1, maximum=_DAY)] = None
    """How long a node must be calm before each step back."""
    cpu_suppress_floor_percent: Percent = None
    """Of cpuSuppressThresholdPercent."""
    cfs_quota_burst_floor_percent: Annotated[int | None, Schema(minimum=100), Admission(minimum=100)] = None
    """Of cfsQuotaBurstPercent."""
    cpu_reclaim_floor_percent: Percent = None
    """Of cpuReclaimThresholdPercent, from which batch CPU is computed."""
    memory_reclaim_floor_percent: Percent = None
    """Of memoryReclaimThresholdPercent, from which batch memory is computed."""
    score_floor_percent: Percent = None
    """Of the node's score by load in the scheduler."""


class AdaptiveSLOState(WireStruct):
    """The annotation node.koordinator.sh/adaptive-slo: all that is remembered of a node."""

    level: int = 0
    """Steps taken and not taken back; 0: what is configured holds."""
    steps: int = 1
    """Of how many."""
    since: Time | None = None
    """When the last step was taken, in either direction."""
    calm_from: Time | None = None
    """From when on the node counts as calm, if nothing happens until then or since."""
    score_percent: int = 100
    """What is left of the node's score by load."""
    reason: str = ""
    """What the last step towards the floors was taken for."""


def read_state(annotations: Mapping[str, str]) -> AdaptiveSLOState | None:
    """The state of a Node. One that cannot be read, or cannot be, is none: the node begins anew."""
    text = annotations.get(ADAPTIVE_SLO)
    if text is None:
        return None
    state = decode_or(text, AdaptiveSLOState, None)
    if state is None or not (0 <= state.level <= state.steps <= MOST_STEPS and 0 <= state.score_percent <= 100):
        return None
    return state


def score_percent(annotations: Mapping[str, str]) -> int:
    """What is left of the score by load of a Node."""
    state = read_state(annotations)
    return 100 if state is None else state.score_percent
