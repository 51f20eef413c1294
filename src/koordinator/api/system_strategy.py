"""Part of NodeSLO: kernel settings of the node as a whole."""

from __future__ import annotations

from typing import Annotated

import msgspec

from koordinator.api.constraints import Admission, Switch
from koordinator.api.meta import WireStruct
from koordinator.api.quantity import Quantity


class SystemStrategy(WireStruct):
    min_free_kbytes_factor: Annotated[int | None, Admission(minimum=1)] = None
    """vm.min_free_kbytes, in ten-thousandths of the node's memory."""
    watermark_scale_factor: Annotated[int | None, Admission(minimum=1, maximum=400)] = None
    memcg_reap_background: Switch = msgspec.field(default=None, name="memcgReapBackGround")
    sched_group_identity_enabled: int | None = None
    sched_idle_saver_wmark: int | None = None
    """Nanoseconds."""
    sched_features: dict[str, bool] = {}
    page_cache_limit_enabled: Switch = None
    total_network_bandwidth: Quantity = Quantity(0)
    """Bits per second; of this the shares of network QoS are taken."""
