"""Part of NodeSLO: kernel settings of the node as a whole."""

from __future__ import annotations

from typing import Annotated

import msgspec

from koordinator.api.constraints import Admission, Switch
from koordinator.api.meta import WireStruct
from koordinator.api.quantity import Quantity


class SystemStrategy(WireStruct):
    """Kernel settings of the node as a whole."""

    min_free_kbytes_factor: Annotated[int | None, Admission(minimum=1)] = None
    """vm.min_free_kbytes, in ten-thousandths of the node's memory."""
    watermark_scale_factor: Annotated[int | None, Admission(minimum=1, maximum=400)] = None
    """vm.watermark_scale_factor, in ten-thousandths of the node's memory."""
    memcg_reap_background: Switch = msgspec.field(default=None, name="memcgReapBackGround")
    """1: the memory of dead cgroups is reaped in the background."""
    sched_group_identity_enabled: int | None = None
    """1: the kernel's scheduler honours group identities."""
    sched_idle_saver_wmark: int | None = None
    """Nanoseconds."""
    sched_features: dict[str, bool] = {}
    """Features of the kernel's scheduler, by name, on or off."""
    page_cache_limit_enabled: Switch = None
    """1: limits of the page cache are in force."""
    total_network_bandwidth: Quantity = Quantity(0)
    """Bits per second; of this the shares of network QoS are taken."""
