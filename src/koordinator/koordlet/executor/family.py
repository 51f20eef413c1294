"""Kernel files that are decided and written together, so that a change of one costs no look at all the others.

Whether a value is right depends on the same file in the folders above, and on few others: the kernel takes no burst
above the quota, on version 2 quota and period are words of one file, as are all limits of a disk, weights are locked
while a cgroup is idle, and a group of resctrl is made with its first file. Nothing else in the table depends on another
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from koordinator.koordlet.executor.marks import Marks, puts_back
from koordinator.koordlet.executor.progress import IN_FORCE, Progress
from koordinator.koordlet.executor.wishes import Setting, Wish
from koordinator.node.kernel_files import (
    CPU_BURST,
    CPU_IDLE,
    CPU_PERIOD,
    CPU_QUOTA,
    CPU_SHARES,
    Format,
    KernelFile,
    Root,
    Target,
)

_TOGETHER: Final = {
    CPU_BURST: CPU_QUOTA.key,
    CPU_PERIOD: CPU_QUOTA.key,
    CPU_IDLE: CPU_SHARES.key,
}


def family_of(file: KernelFile) -> str:
    """The name of its family."""
    if file.root is Root.RESCTRL:
        return Root.RESCTRL.value
    if file.format in (Format.DEVICE_NUMBER, Format.DEVICE_LINE):
        return "blkio"
    return _TOGETHER.get(file, file.key)


@dataclass(slots=True)
class Family:
    """What is wished for its files, and how far that has come."""

    progress: Progress
    marks: Marks
    wishes: dict[str, tuple[Wish, ...]] = field(default_factory=dict)
    """By owner."""
    settings: Mapping[Target, Setting] = field(default_factory=dict)
    invalid: dict[Wish, str] = field(default_factory=dict)
    next_look: float = -inf
    """Before then nothing has to be done unless the wishes change (monotonic)."""

    def replace(self, owner: str, wishes: tuple[Wish, ...]) -> None:
        """These are all the wishes of the owner from now on."""
        if self.wishes.get(owner, ()) == wishes:
            return
        if wishes:
            self.wishes[owner] = wishes
        else:
            del self.wishes[owner]
        self.next_look = -inf

    def unmark_restored(self) -> bool:
        """Whether any file has its value from the kubelet again, so that nothing has to be put back there."""
        restored = False
        for target, setting in self.settings.items():
            state = self.progress.state(target) if puts_back(setting.winner) else None
            if state is not None and state.outcome in IN_FORCE:
                self.marks.remove(target)
                restored = True
        return restored
