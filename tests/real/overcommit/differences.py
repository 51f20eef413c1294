"""Where our controllers differ from the original's on purpose: each with its reason, and where it may show.

A case names those that it is to show. It fails when one of them does not, and when anything else differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Final

_AMOUNTS: Final = r"(allocatable|capacity) kubernetes\.io/(batch|mid)-(cpu|memory)"
_ORIGIN: Final = r"annotations node\.koordinator\.sh/originExtendedAllocatable"
_DEVICES: Final = r"(allocatable|capacity) (koordinator\.sh/(gpu|rdma)|huawei\.com/npu)"


@dataclass(frozen=True, slots=True)
class Difference:
    reason: str
    where: re.Pattern[str]
    is_such: Callable[[str, str], bool]
    """Whether our value and theirs differ in this way."""

    def covers(self, path: str, ours: str, theirs: str) -> bool:
        return self.where.match(path) is not None and self.is_such(ours, theirs)


def _difference(
    reason: str, *where: str, is_such: Callable[[str, str], bool] = lambda ours, theirs: True
) -> Difference:
    return Difference(reason, re.compile("|".join(where)), is_such)


def _is_ours_zero(ours: str, _: str) -> bool:
    return ours == "0"


def _is_theirs_zero(_: str, theirs: str) -> bool:
    return theirs.strip('"') in ("0", "absent")


def _is_ours_absent(ours: str, _: str) -> bool:
    return ours == "absent"


def _is_theirs_absent(_: str, theirs: str) -> bool:
    return theirs == "absent"


def _by_amounts(is_such: Callable[[Fraction, Fraction], bool]) -> Callable[[str, str], bool]:
    """A difference between two amounts; one that is absent has none."""

    def compare(ours: str, theirs: str) -> bool:
        try:
            return is_such(Fraction(ours), Fraction(theirs))
        except ValueError:
            return False

    return compare


_is_ours_less: Final = _by_amounts(lambda ours, theirs: ours < theirs)
_is_little_less: Final = _by_amounts(lambda ours, theirs: 0 < ceil(theirs) - ceil(ours) <= 2)
"""By one for each of two readings."""
_is_within_half: Final = _by_amounts(lambda ours, theirs: abs(ours - theirs) * 2 <= theirs)
"""The most that a case lets zones differ by before they are written."""
_is_whole_part: Final = _by_amounts(
    lambda ours, theirs: ours.denominator == 1 != theirs.denominator and abs(ours - theirs) < 1
)
"""Ours is whole, theirs is not."""


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
WHOLE_UNITS: Final = "whole units"
ZONES_UP_TO_DATE: Final = "zones up to date"
ZONES_BY_NAME: Final = "zones by name"
BAD_PROFILE_LEFT_ALONE: Final = "bad profile left alone"
FUTURE_IS_DISTRUSTED: Final = "future is distrusted"
WRAPPED: Final = "wrapped"
ZONE_ORDER_KEPT: Final = "zone order kept"
NUMA_NODE_COUNTS_ONCE: Final = "NUMA node counts once"
ROUNDED_EACH: Final = "rounded each"

AMPLIFICATION_BEHIND: Final = "amplification behind"
RATIO_BETWEEN_KEYS: Final = "ratio between keys"

INTENDED: Final = {
    UNMEASURED_BY_REQUEST: _difference(
        "by maxUsageRequest, pods that nobody has measured count by request on the node too, not only in its zones",
        _AMOUNTS,
        _ORIGIN,
        is_such=_is_ours_less,
    ),
    DEVICES_WITHOUT_COLOCATION: _difference(
        "what devices a node has does not depend on whether batch pods are wanted there",
        _DEVICES,
        r"labels node\.koordinator\.sh/gpu-",
    ),
    DEVICE_NAMES_REMOVED: _difference(
        "what no card has any more is not offered any more", _DEVICES, is_such=_is_ours_absent
    ),
    AMPLIFICATION_KEPT: _difference(
        "an error in the configuration does not take away what pods on the node count on",
        r"annotations node\.koordinator\.sh/resource-amplification-ratio",
        is_such=_is_theirs_absent,
    ),
    NEGATIVE_IS_ZERO: _difference(
        "nothing uses less than nothing; capacity made of that is not there", _AMOUNTS, _ORIGIN
    ),
    ZONES_ZEROED: _difference(
        "a node that offers nothing offers nothing in its zones",
        r"zones \S+ kubernetes\.io/batch-",
        is_such=_is_ours_zero,
    ),
    NO_BODY_DEGRADES: _difference(
        "nothing is known of a node whose report has no readings; the original fails over it again and again",
        _AMOUNTS,
        r"annotations",
    ),
    RATIO_ROUNDED: _difference(
        "0.29 is 29 percent: it is rounded, not cut to 28", _AMOUNTS, _ORIGIN, r"zones \S+ kubernetes\.io/batch-"
    ),
    BANDWIDTH_INHERITED: _difference(
        "a group that does not name a bandwidth has the cluster's",
        r"slo systemStrategy totalNetworkBandwidth",
        is_such=_is_theirs_zero,
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
    WHOLE_UNITS: _difference(
        "there are no thousandths of a byte or of a milli-CPU",
        _AMOUNTS,
        r"zones \S+ kubernetes\.io/batch-",
        is_such=_is_whole_part,
    ),
    ZONES_UP_TO_DATE: _difference(
        "zones that are written for one amount are written with all that has changed",
        r"zones \S+ kubernetes\.io/batch-",
        is_such=_is_within_half,
    ),
    ZONES_BY_NAME: _difference(
        "the zone of a NUMA node is the one that bears its number, wherever it stands",
        r"zones \S+ kubernetes\.io/batch-",
    ),
    BAD_PROFILE_LEFT_ALONE: _difference(
        "a profile whose selector cannot be used gets no tree before it can have a quota",
        r"profile quota\.scheduling\.koordinator\.sh/tree-id",
    ),
    ZONE_ORDER_KEPT: _difference(
        "resources of a zone that others have put out of order stay in their places", r"zones \S+ \S+ place"
    ),
    NUMA_NODE_COUNTS_ONCE: _difference(
        "a pod that is said to be on a NUMA node twice is there once", r"zones \S+ kubernetes\.io/batch-"
    ),
    WRAPPED: _difference(
        "a fraction of Gi below zero is no large amount", r"(allocatable|capacity) kubernetes\.io/mid-memory"
    ),
    ROUNDED_EACH: _difference(
        "readings finer than a milli-CPU are rounded up; in the original, what they leave is",
        r"(allocatable|capacity) kubernetes\.io/(batch|mid)-cpu",
        _ORIGIN,
        is_such=_is_little_less,
    ),
    FUTURE_IS_DISTRUSTED: _difference(
        "a report of a time that has not come yet never grows old: it is not computed with", _AMOUNTS, _ORIGIN
    ),
}
CHANCES: Final = {
    RATIO_BETWEEN_KEYS: _difference(
        "the original reads the keys of a ConfigMap one by one, and may write a new ratio before it reads that "
        "colocation is off, after which the ratio stays",
        r"annotations node\.koordinator\.sh/cpu-normalization-ratio",
    ),
    AMPLIFICATION_BEHIND: _difference(
        "the original multiplies by the ratio that it read, not by the one that it writes, and then does not always "
        "look again",
        r"annotations node\.koordinator\.sh/resource-amplification-ratio cpu",
    ),
}
"""Those that depend on which event comes first, so that no case of its own can be made of them."""
