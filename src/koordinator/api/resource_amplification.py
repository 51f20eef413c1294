"""How much more of its resources a node shows than it has: one key of the SLO ConfigMap."""

from __future__ import annotations

from typing import Annotated

from koordinator.api.constraints import Admission
from koordinator.api.meta import WireStruct


class ResourceAmplificationStrategy(WireStruct):
    enable: bool | None = None
    resource_amplification_ratio: Annotated[dict[str, float], Admission(minimum=1)] = {}
    """Resource -> ratio, 1 or more."""
