"""A node that looks other than it is: changes of the cluster state that are all undone at the end of a block.

Pods are removed and placed in it, or requests are counted that no pod has made. Every event handler is notified of
pods, so that each plugin can be called for hypothetical nodes; allocations are attached and detached with their pods.
At the end everything is as before, the order of pods and the versions of rows included, whatever was raised in between:
caches of something computed from these rows stay valid. Nothing that is computed in the block may be cached for longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from koordinator.scheduler.engine.allocations import Allocation, AllocationLedger
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.pod_info import PlacedPod, PodInfo


class Change(Protocol):
    """A hypothetical change of one node. ``apply`` and ``revert`` alternate; ``revert`` is also called after a failed
    ``apply``."""

    def apply(self) -> None: ...
    def revert(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What a simulation adds to the requested resources of a node (negative: frees), see ``Journal.adjust``."""

    amounts: Mapping[str, int] = field(default_factory=dict)
    """By name of the resource; ``pods`` counts pods."""
    non_zero: tuple[int, int] = (0, 0)
    removed: tuple[PodInfo, ...] = ()
    """Pods of the node that count as removed: with what they request, their ports and their allocations."""
    added: tuple[PodInfo, ...] = ()
    """Pods that count as being on the node."""
    changes: tuple[Change, ...] = ()
    """Further changes of the row, applied before pods are removed and added, and reverted after these are restored."""


class Placements(Protocol):
    """What the cluster state does for a journal, see there."""

    def placed(self, uid: str) -> PlacedPod | None: ...
    def take_off(self, placed: PlacedPod) -> None: ...
    def put_back(self, placed: PlacedPod) -> None: ...
    def assume(self, pod: PodInfo, node_name: str) -> None: ...
    def forget(self, uid: str) -> bool: ...


Request = tuple[Mapping[str, int], tuple[int, int], int]
"""The arguments of ``NodeColumns.add_request`` for some row."""


def total(requests: Iterable[Request]) -> Request:
    """All of them as one."""
    amounts: dict[str, int] = defaultdict(int)
    cpu = memory = 0
    for each, non_zero, times in requests:
        for name, amount in each.items():
            amounts[name] += times * amount
        cpu += times * non_zero[0]
        memory += times * non_zero[1]
    return amounts, (cpu, memory), 1


Mark = tuple[int, int]
"""A position in a journal."""


class CrossNodeResults(Hashable, Protocol):
    """CachedFilterResults whose values depend on other rows, too. That module is above this one."""

    plugin: Any
    pod: PodInfo
    state: Any


class Journal:
    """A block in which changes are made and at the end of which they are undone, the last one first.

    Not a generator: a plugin that uses it may be interrupted at any place, and a generator would not be resumed then.
    """

    __slots__ = (
        *("_allocations", "_columns", "_informed", "_open", "_pods_now", "_pods_on", "_removed", "_requests", "_rows"),
        *("_state", "_undo", "count", "has_added"),
    )

    def __init__(
        self,
        state: Placements,
        columns: NodeColumns,
        allocations: AllocationLedger,
        pods_on: dict[int, dict[str, PodInfo]],
        open_: list[Journal],
    ) -> None:
        """``columns``, ``allocations`` and ``pods_on`` are those of the view. ``open_`` has the journals whose blocks
        have not ended, the outermost first."""
        self._state = state
        self._columns = columns
        self._allocations = allocations
        self._pods_now = pods_on
        self._open = open_
        self._undo: list[Callable[[], object]] = []
        """Undoes each change but ``_requests``. Each is in the list before the change, which may fail, begins."""
        self._requests: list[tuple[int, Request]] = []
        """What was added to rows."""
        self._pods_on: dict[int, dict[str, PodInfo]] = {}
        """For each row whose pods were changed, its pods in their original order."""
        self._rows: set[int] = set()
        """The rows that have been changed, those of undone changes included."""
        self._removed: dict[str, PlacedPod] = {}
        """The pods that have been removed, by uid, with those that are back again."""
        self._informed: dict[CrossNodeResults, int] = {}
        """The filters that have been used, with ``count`` when they were notified last."""
        self.count = 0
        """Grows with every change, and with every one that is undone."""
        self.has_added = False
        """Whether there has been any change other than the removal of pods."""

    def __enter__(self) -> Self:
        self._columns.begin_simulation()
        self._open.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.undo((0, 0))
        finally:
            self._pods_now.update(self._pods_on)
            try:
                if self._informed:
                    # Before the end: after it, no row has changed since the beginning.
                    self.inform(tuple(self._informed))
            finally:
                self._columns.end_simulation()
                self._open.pop()
                if self._informed and self._open:
                    # They have seen the changes of the block around this one, too.
                    self._open[-1]._informed.update(dict.fromkeys(self._informed, -1))

    @property
    def mark(self) -> Mark:
        """The present position, to ``undo`` all later changes."""
        return len(self._undo), len(self._requests)

    def undo(self, mark: Mark) -> None:
        """Undo the changes since ``mark``, the last first. The first error of an event handler is raised when all is
        done."""
        failed: Exception | None = None
        while len(self._undo) > mark[0]:
            self.count += 1
            try:
                self._undo.pop()()
            except Exception as error:
                failed = failed or error
        # In whatever order, so all of one row at once.
        added: dict[int, list[Request]] = {}
        while len(self._requests) > mark[1]:
            self.count += 1
            row, request = self._requests.pop()
            added.setdefault(row, []).append(request)
        for row, requests in added.items():
            amounts, non_zero, times = requests[0] if len(requests) == 1 else total(requests)
            self._columns.add_request(row, amounts, non_zero, -times)
        if failed is not None:
            raise failed

    def inform(self, filters: Iterable[CrossNodeResults]) -> None:
        """Before these filters, whose result for a node depends on others, are used: notify them of the changes since
        the last call for them. They are notified again when all is undone. Raises the first error of a plugin when all
        have been notified."""
        behind = [entry for entry in filters if self._informed.setdefault(entry, 0) != self.count]
        rows, failed = np.array(sorted(self._rows) if behind else (), dtype=np.intp), None
        for entry in behind:
            self._informed[entry] = self.count
            try:
                entry.plugin.apply_delta(entry.pod, entry.state, rows)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def remove(self, uid: str) -> bool:
        """Take the pod off its node; False if it is on no known node."""
        placed = self._state.placed(uid)
        if placed is None or placed.row < 0:
            return False
        self._removed[uid] = placed
        self._begin(placed.row)
        self._undo.append(partial(self._state.put_back, placed))
        self._state.take_off(placed)
        return True

    def put_back(self, uid: str) -> bool:
        """Put a removed pod back, with all that it held; False if it was not removed."""
        placed = self._removed.get(uid)
        if placed is None or self._state.placed(uid) is not None:
            return False
        self._begin(placed.row, added=True)
        self._undo.append(partial(self._state.take_off, placed))
        self._state.put_back(placed)
        return True

    def place(self, pod: PodInfo, row: int) -> bool:
        """Put the pod on the node of ``row``; False if it is on a node already."""
        if self._state.placed(pod.uid) is not None:
            return False
        self._begin(row, added=True)
        self._undo.append(partial(self._state.forget, pod.uid))
        self._state.assume(pod, self._columns.names[row])
        return True

    def allocate(self, row: int, pod: PodInfo, plugin: str, allocation: Allocation) -> None:
        """Give a pod that was placed on ``row`` the allocation."""
        self._begin(row, added=True)
        self._undo.append(partial(self._allocations.release, row, pod, plugin))
        self._allocations.take(row, pod, plugin, allocation)

    def add_request(self, row: int, amounts: Mapping[str, int], non_zero: tuple[int, int], times: int = 1) -> None:
        """Count a request on ``row`` so many times more (negative: less), see NodeColumns, without any pod. It
        costs much less than to place one, but only plugins that go by the columns alone see it."""
        self._rows.add(row)
        self.count += 1
        self.has_added = True
        self._columns.add_request(row, amounts, non_zero, times)
        self._requests.append((row, (amounts, non_zero, times)))

    def undo_request(self) -> None:
        """Undo the last change, which was ``add_request``; faster than ``undo``."""
        row, (amounts, non_zero, times) = self._requests.pop()
        self.count += 1
        self._columns.add_request(row, amounts, non_zero, -times)

    def adjust(self, row: int, adjustment: Adjustment) -> None:
        """Apply all parts of an adjustment."""
        for change in adjustment.changes:
            self._begin(row, added=True)
            self._undo.append(change.revert)
            change.apply()
        for pod in adjustment.removed:
            self.remove(pod.uid)
        for pod in adjustment.added:
            self.place(pod, row)
        if adjustment.amounts or any(adjustment.non_zero):
            self.add_request(row, adjustment.amounts, adjustment.non_zero)

    def _begin(self, row: int, *, added: bool = False) -> None:
        """A change of the pods on the row begins."""
        self._rows.add(row)
        if row not in self._pods_on:
            pods = self._pods_on[row] = self._pods_now[row]
            self._pods_now[row] = dict(pods)
        self.count += 1
        self.has_added |= added
