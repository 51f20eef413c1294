"""Where our controllers differ from the original's on purpose: each with its reason, and where it may show.

A case names those that it is to show. It fails when one of them does not, and when anything else differs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_AMOUNTS: Final = r"(allocatable|capacity) kubernetes\.io/(batch|mid)-(cpu|memory)"
_ORIGIN: Final = r"annotations node\.koordinator\.sh/originExtendedAllocatable"
_DEVICES: Final = r"(allocatable|capacity) (koordinator\.sh/(gpu|rdma)|huawei\.com/npu)"


@dataclass(frozen=True, slots=True)
class Difference:
    reason: str
    where: re.Pattern[str]

    def covers(self, path: str) -> bool:
        return self.where.match(path) is not None


def _difference(reason: str, *where: str) -> Difference:
    return Difference(reason, re.compile("|".join(where)))


UNMEASURED_BY_REQUEST: Final = "unmeasured by request"
DEVICES_WITHOUT_COLOCATION: Final = "devices without colocation"
DEVICE_NAMES_REMOVED: Final = "device names removed"
AMPLIFICATION_KEPT: Final = "amplification kept"
NEGATIVE_IS_ZERO: Final = "negative is zero"
ZONES_ZEROED: Final = "zones zeroed"
NO_BODY_DEGRADES: Final = "no body degrades"
RATIO_ROUNDED: Final = "ratio rounded"
BANDWIDTH_INHERITED: Final = "bandwidth inherited"
BLOCKS_REPLACED: Final = "blocks replaced"
BAD_BANDWIDTH_IGNORED: Final = "bad bandwidth ignored"
BARE_NODES: Final = "bare nodes"
ZONES_IN_WHOLE_BYTES: Final = "zones in whole bytes"
ZONES_UP_TO_DATE: Final = "zones up to date"
ZONES_BY_NAME: Final = "zones by name"
BAD_PROFILE_LEFT_ALONE: Final = "bad profile left alone"
FUTURE_IS_DISTRUSTED: Final = "future is distrusted"

INTENDED: Final = {
    UNMEASURED_BY_REQUEST: _difference(
        "by maxUsageRequest, pods that nobody has measured count by request on the node too, not only in its zones",
        _AMOUNTS,
        _ORIGIN,
    ),
    DEVICES_WITHOUT_COLOCATION: _difference(
        "what devices a node has does not depend on whether batch pods are wanted there",
        _DEVICES,
        r"labels node\.koordinator\.sh/gpu-",
    ),
    DEVICE_NAMES_REMOVED: _difference("what no card has any more is not offered any more", _DEVICES),
    AMPLIFICATION_KEPT: _difference(
        "an error in the configuration does not take away what pods on the node count on",
        r"annotations node\.koordinator\.sh/resource-amplification-ratio",
    ),
    NEGATIVE_IS_ZERO: _difference(
        "nothing uses less than nothing; capacity made of that is not there", _AMOUNTS, _ORIGIN
    ),
    ZONES_ZEROED: _difference(
        "a node that offers nothing offers nothing in its zones", r"zones \S+ kubernetes\.io/batch-"
    ),
    NO_BODY_DEGRADES: _difference(
        "nothing is known of a node whose report has no readings; the original fails over it again and again",
        _AMOUNTS,
        r"annotations",
    ),
    RATIO_ROUNDED: _difference("0.29 is 29 percent: it is rounded, not cut to 28", _AMOUNTS, _ORIGIN),
    BANDWIDTH_INHERITED: _difference(
        "a group that does not name a bandwidth has the cluster's", r"slo systemStrategy totalNetworkBandwidth"
    ),
    BLOCKS_REPLACED: _difference(
        "the block devices of a group are its own, not a mixture by place in the list",
        r"slo resourceQOSStrategy \S+ blkioQOS blocks",
    ),
    BAD_BANDWIDTH_IGNORED: _difference(
        "an annotation that cannot be read does not take away the rest of the strategy", r"slo systemStrategy"
    ),
    BARE_NODES: _difference(
        "a node without a label or an annotation is as good as any other", _AMOUNTS, _DEVICES, r"annotations", r"labels"
    ),
    ZONES_IN_WHOLE_BYTES: _difference("there are no thousandths of a byte", r"zones \S+ kubernetes\.io/batch-memory"),
    ZONES_UP_TO_DATE: _difference(
        "zones that are written for one amount are written with all that has changed",
        r"zones \S+ kubernetes\.io/batch-",
    ),
    ZONES_BY_NAME: _difference(
        "the zone of a NUMA node is the one that bears its number, wherever it stands",
        r"zones \S+ kubernetes\.io/batch-",
    ),
    BAD_PROFILE_LEFT_ALONE: _difference(
        "a profile whose selector cannot be used gets no tree before it can have a quota",
        r"profile quota\.scheduling\.koordinator\.sh/tree-id",
    ),
    FUTURE_IS_DISTRUSTED: _difference(
        "a report of a time that has not come yet never grows old: it is not computed with", _AMOUNTS, _ORIGIN
    ),
}
