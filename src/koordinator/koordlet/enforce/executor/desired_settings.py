"""The settings that features desire for the values of kernel files, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from koordinator.node.kernel_files import Target, Value


class Priority(IntEnum):
    """A pod's own annotation goes before a policy of the node, and that before what undoes a feature."""

    RELEASE = 0
    """What the kubelet has: desired by a feature that is off. A file that the kubelet writes, too, is written for such
    a setting only where koordlet has changed it before, in this process or in an earlier one."""
    BASE = 5
    """What a pod's limits come to on this node, before a strategy moves them."""
    POLICY = 10
    """The NodeSLO."""
    POD = 20
    """An annotation of the pod, or its allocation."""
    RESIZE = 30
    """What the kernel needs in order to take what the kubelet is about to write."""


@dataclass(frozen=True, slots=True)
class DesiredSetting:
    """``owner`` is the name of the feature; ``reason`` says to a person why this value."""

    owner: str
    target: Target
    value: Value
    reason: str
    priority: Priority = Priority.POLICY


@dataclass(frozen=True, slots=True)
class Overridden:
    """A desired setting that is not in force as it is, and why."""

    desired: DesiredSetting
    why: str


@dataclass(frozen=True, slots=True)
class Setting:
    """What a target is to have."""

    target: Target
    value: Value
    winner: DesiredSetting
    owners: tuple[str, ...]
    """Whose desired settings are part of it."""
    overridden: tuple[Overridden, ...] = ()
    limited_by: str = ""
    """Which parent cut the value, if one did."""


class Outcome(StrEnum):
    """What has become of a setting."""

    WRITTEN = "written"
    THERE_ALREADY = "there already"
    NOT_WRITTEN_YET = "not written yet"
    ONLY_OBSERVED = "only observed: it would be written"
    REFUSED = "refused by the kernel"
    NOT_HELD = "not what the kernel shows after it was written"
    INVALID = "not a value of that file"
    UNSUPPORTED = "the kernel has no such file"
    VANISHED = "the cgroup is gone"


IN_FORCE: Final = frozenset({Outcome.WRITTEN, Outcome.THERE_ALREADY})


@dataclass(frozen=True, slots=True)
class Explanation:
    """For one value of the kernel: who desired what, who won and what came of it."""

    path: str
    setting: Setting
    outcome: Outcome
    detail: str = ""
    """What the kernel said, where it did not take the value."""
    failures: int = 0
    """How often in a row it did not."""


@dataclass(frozen=True, slots=True)
class Written:
    """One write that the kernel took, or in observe-only mode one that it would have been given."""

    path: str
    text: str
    setting: Setting
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Applied:
    """What one ``apply`` of the executor did."""

    written: tuple[Written, ...] = ()
    failed: tuple[Explanation, ...] = ()
    may_go_on: bool = False
    """Whether something was left only so that others have their turn: the kernel waits for nothing."""
