"""Changes of the cluster state that are all undone: a simulation in which some pods are removed and others are placed.

Every event handler is notified, so that each plugin can be called for hypothetical nodes; allocations are attached and
detached with their pods. At the end everything is as before, the order of pods and the versions of rows included,
whatever was raised in between: caches of something computed from these rows stay valid.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Protocol, Self

from koordinator.scheduler.engine.adjustment import Adjustment, Change
from koordinator.scheduler.engine.allocations import Allocation, AllocationLedger
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.pod_info import PlacedPod, PodInfo


class Placements(Protocol):
    """What the cluster state does for a journal, see there."""

    def placed(self, uid: str) -> PlacedPod | None: ...
    def take_off(self, placed: PlacedPod) -> None: ...
    def put_back(self, placed: PlacedPod) -> None: ...
    def assume(self, pod: PodInfo, node_name: str) -> None: ...
    def forget(self, uid: str) -> bool: ...


class _Removal:
    def __init__(self, state: Placements, placed: PlacedPod) -> None:
        self._state = state
        self.placed = placed

    def apply(self) -> None:
        self._state.take_off(self.placed)

    def revert(self) -> None:
        self._state.put_back(self.placed)


class _Return:
    def __init__(self, removal: _Removal) -> None:
        self._removal = removal

    def apply(self) -> None:
        self._removal.revert()

    def revert(self) -> None:
        self._removal.apply()


class _Arrival:
    def __init__(self, state: Placements, pod: PodInfo, node_name: str) -> None:
        self._state = state
        self._pod = pod
        self._node_name = node_name

    def apply(self) -> None:
        self._state.assume(self._pod, self._node_name)

    def revert(self) -> None:
        self._state.forget(self._pod.uid)


class _Allocating:
    def __init__(self, ledger: AllocationLedger, row: int, pod: PodInfo, plugin: str, allocation: Allocation) -> None:
        self._ledger = ledger
        self._row = row
        self._pod = pod
        self._plugin = plugin
        self._allocation = allocation

    def apply(self) -> None:
        self._ledger.take(self._row, self._pod, self._plugin, self._allocation)

    def revert(self) -> None:
        self._ledger.release(self._row, self._pod, self._plugin)


class _Shift:
    def __init__(self, columns: NodeColumns, row: int, adjustment: Adjustment) -> None:
        self._columns = columns
        self._row = row
        self._adjustment = adjustment
        self._is_applied = False

    def apply(self) -> None:
        self._columns.add_request(self._row, self._adjustment.amounts, self._adjustment.non_zero, 1)
        self._is_applied = True

    def revert(self) -> None:
        if self._is_applied:
            self._columns.add_request(self._row, self._adjustment.amounts, self._adjustment.non_zero, -1)
            self._is_applied = False


class Journal:
    """A block in which changes are made and at the end of which they are undone, the last one first.

    Not a generator: a plugin that uses it may be interrupted at any place, and a generator would not be resumed then.
    """

    def __init__(
        self,
        state: Placements,
        columns: NodeColumns,
        allocations: AllocationLedger,
        pods_on: dict[int, dict[str, PodInfo]],
    ) -> None:
        """``columns``, ``allocations`` and ``pods_on`` are those of the view."""
        self._state = state
        self._columns = columns
        self._allocations = allocations
        self._pods_now = pods_on
        self._changes: list[Change] = []
        self._pods_on: dict[int, dict[str, PodInfo]] = {}
        """For each changed row, its pods in their original order."""
        self.count = 0
        """Grows with every change, and with every one that is undone."""
        self.has_added = False
        """Whether there has been any change other than the removal of pods."""

    def __enter__(self) -> Self:
        self._columns.begin_simulation()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.undo(0)
        finally:
            self._pods_now.update(self._pods_on)
            self._columns.end_simulation()

    @property
    def rows(self) -> Iterable[int]:
        """The rows that have been changed, those of undone changes included."""
        return self._pods_on.keys()

    @property
    def mark(self) -> int:
        """The present position, to ``undo`` all later changes."""
        return len(self._changes)

    def undo(self, mark: int) -> None:
        """Undo the changes since ``mark``, the last first. The first error of an event handler is raised when all is
        done."""
        failed: Exception | None = None
        while len(self._changes) > mark:
            self.count += 1
            try:
                self._changes.pop().revert()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def remove(self, uid: str) -> bool:
        """Take the pod off its node; False if it is on no known node."""
        placed = self._state.placed(uid)
        if placed is None or placed.row < 0:
            return False
        self._do(placed.row, _Removal(self._state, placed))
        return True

    def put_back(self, uid: str) -> bool:
        """Put a removed pod back, with all that it held; False if it was not removed."""
        if self._state.placed(uid) is not None:
            return False
        for change in reversed(self._changes):
            if isinstance(change, _Removal) and change.placed.pod.uid == uid:
                self._do(change.placed.row, _Return(change))
                return True
        return False

    def place(self, pod: PodInfo, row: int) -> bool:
        """Put the pod on the node of ``row``; False if it is on a node already."""
        if self._state.placed(pod.uid) is not None:
            return False
        self._do(row, _Arrival(self._state, pod, self._columns.names[row]))
        return True

    def allocate(self, row: int, pod: PodInfo, plugin: str, allocation: Allocation) -> None:
        """Give a pod that was placed on ``row`` the allocation."""
        self._do(row, _Allocating(self._allocations, row, pod, plugin, allocation))

    def adjust(self, row: int, adjustment: Adjustment) -> None:
        """Apply all parts of an adjustment."""
        for change in adjustment.changes:
            self._do(row, change)
        for pod in adjustment.removed:
            self.remove(pod.uid)
        for pod in adjustment.added:
            self.place(pod, row)
        if adjustment.amounts or any(adjustment.non_zero):
            self._do(row, _Shift(self._columns, row, adjustment))

    def _do(self, row: int, change: Change) -> None:
        pods_on = self._pods_now
        if row not in self._pods_on:
            self._pods_on[row] = pods_on[row]
            pods_on[row] = dict(pods_on[row])
        self.count += 1
        self.has_added |= not isinstance(change, _Removal)
        self._changes.append(change)
        change.apply()
