"""Randomness without state: a hash of (seed, identity, purpose, time bucket), over whole columns at once.

A generator would make a pod's load depend on how often and in which order it was asked; a hash makes it a function of
its arguments, so that a restart, another sampling interval or another set of neighbours changes nothing.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.uint64]

_GOLDEN: Final = 0x9E3779B97F4A7C15
_MASK: Final = 2**64 - 1


class Purpose(IntEnum):
    """What a draw is for; draws for different purposes are independent."""

    CPU_LEVEL = 1
    CPU_NOISE = 2
    PEAK_HOUR = 3
    SPIKE = 4
    SPIKE_START = 5
    SPIKE_FACTOR = 6
    SPIKE_DURATION = 7
    MEMORY_LEVEL = 8
    MEMORY_NOISE = 9
    MEMORY_RAMP = 10
    RUN_TIME = 11
    START_LATENCY = 12
    STOP_LATENCY = 13


def identity(text: str) -> int:
    """64 bits that stand for a pod's uid or a node's name."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def uniform(seed: int, ids: Ids, purpose: Purpose, bucket: int = 0) -> Floats:
    """One number in [0, 1) for each id."""
    salt = _mix_int(_mix_int(seed & _MASK) ^ (purpose * _GOLDEN & _MASK) ^ _mix_int(bucket & _MASK))
    mixed = _mix(ids ^ np.uint64(salt))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def between(seed: int, ids: Ids, purpose: Purpose, bounds: tuple[float, float], bucket: int = 0) -> Floats:
    """One number in [low, high) for each id."""
    low, high = bounds
    return low + (high - low) * uniform(seed, ids, purpose, bucket)


def one_between(seed: int, id_: int, purpose: Purpose, bounds: tuple[float, float]) -> float:
    """``between`` for a single id."""
    return float(between(seed, np.array([id_], dtype=np.uint64), purpose, bounds)[0])


def smooth(seed: int, ids: Ids, purpose: Purpose, time: float, period: float) -> Floats:
    """A curve in [-1, 1) for each id that wanders with time: random knots every ``period`` seconds, eased between."""
    bucket, rest = divmod(time, period)
    share = rest / period
    weight = share * share * (3 - 2 * share)
    before = uniform(seed, ids, purpose, int(bucket))
    after = uniform(seed, ids, purpose, int(bucket) + 1)
    return 2 * (before + (after - before) * weight) - 1


def _mix(values: Ids) -> Ids:
    """The finalizer of splitmix64 (Steele, Lea, Flood 2014); unsigned arrays wrap around without a warning."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _mix_int(value: int) -> int:
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
