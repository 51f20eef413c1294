"""How much more than a plain core a core of each CPU model is worth: one key of the SLO ConfigMap."""

from __future__ import annotations

from typing import Annotated, Final

from koordinator.api.constraints import Admission
from koordinator.api.meta import WireStruct

MINIMUM_RATIO: Final = 1
MAXIMUM_RATIO: Final = 5
_Ratio = Annotated[float | None, Admission(minimum=MINIMUM_RATIO, maximum=MAXIMUM_RATIO)]


class CPUModelRatios(WireStruct):
    """By which of its features a CPU has switched on."""

    base_ratio: _Ratio = None
    hyper_thread_enabled_ratio: _Ratio = None
    turbo_enabled_ratio: _Ratio = None
    hyper_thread_turbo_enabled_ratio: _Ratio = None


class CPUNormalizationStrategy(WireStruct):
    enable: bool | None = None
    default_ratio: _Ratio = None
    """Of CPU models, and features, that ``ratio_model`` does not have."""
    ratio_model: dict[str, CPUModelRatios] = {}
    """CPU model, as koordlet reports it -> ratios."""
