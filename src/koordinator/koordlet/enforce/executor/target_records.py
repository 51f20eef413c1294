"""One record for each target that anybody desires a setting for: who desires what, what came of it, and when the target
is to be looked at again.

Whether a value is right depends on the same file in the folders above. Nothing else in the table of kernel files
depends on another one in a way that its own next look would not find.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final, TypeVar

from koordinator.koordlet.enforce.executor.arbiter import ancestors, elect
from koordinator.koordlet.enforce.executor.desired_settings import (
    IN_FORCE,
    DesiredSetting,
    Explanation,
    Outcome,
    Priority,
    Setting,
)
from koordinator.node.kernel_file_codec import InvalidValueError, KernelFileCodec
from koordinator.node.kernel_files import CONTAINER_LIMITS, KUBELET_FILES, Format, Target, Value

logger = logging.getLogger(__name__)

K = TypeVar("K")
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds."""
_UNFINISHED: Final = frozenset({Outcome.NOT_WRITTEN_YET, Outcome.VANISHED})
"""Looked at each time: the kubelet lists a pod before it has created its cgroup."""


@dataclass(slots=True)
class TargetRecord:
    """``value`` is what was to be written when the target was last looked at. Times are monotonic."""

    target: Target
    desired: dict[str, tuple[DesiredSetting, ...]] = field(default_factory=dict)
    """By owner, as the file will show them."""
    invalid: dict[DesiredSetting, str] = field(default_factory=dict)
    """What the file cannot hold, and why."""
    setting: Setting | None = None
    """What it is to have; None while nothing is to be done."""
    value: Value | None = None
    outcome: Outcome | None = None
    """None for what was never looked at."""
    detail: str = ""
    looked_at: float = -inf
    failures: int = 0
    """In a row, with the same value."""
    retry_at: float = 0.0
    is_inherited: bool = False
    """Whether the file is empty, so that the value is a parent's."""
    due: float = -inf

    @property
    def in_force(self) -> Value | None:
        """What the kernel showed at the last look, if that was what it was to have."""
        return self.value if self.outcome in IN_FORCE and not self.failures else None

    @property
    def all(self) -> list[DesiredSetting]:
        """What all owners desire."""
        return [each for settings in self.desired.values() for each in settings]

    def differs(self, value: Value) -> bool:
        """Whether another value is to be written than at the last look."""
        if self.target.file.format is Format.TASKS and isinstance(value, frozenset):
            return not (isinstance(self.value, frozenset) and value <= self.value)
        return self.value != value

    def may_write(self, now: float) -> bool:
        """Not while the kernel has refused the very value a moment ago."""
        return self.setting is None or not self.failures or self.differs(self.setting.value) or now >= self.retry_at

    def explanation(self, path: str) -> Explanation | None:
        """Why the file has what it has; None while nothing is to be done."""
        setting = self.setting
        if setting is None:
            return None
        if self.due > -inf:
            # The reasons may be others than at the last look.
            setting = replace(elect(self.all), value=setting.value, limited_by=setting.limited_by)
        return Explanation(path, setting, self.outcome or Outcome.NOT_WRITTEN_YET, self.detail, self.failures)

    def settle(self, outcome: Outcome, now: float, detail: str = "", *, is_inherited: bool = False) -> None:
        """What a look has shown."""
        assert self.setting is not None
        self.value, self.outcome, self.looked_at, self.detail = self.setting.value, outcome, now, detail
        self.failures, self.is_inherited = 0, is_inherited

    def fail(self, outcome: Outcome, now: float, detail: str) -> bool:
        """It is tried again after a pause that doubles each time. Whether it is the first failure with the value."""
        assert self.setting is not None
        failures = self.failures + 1 if not self.differs(self.setting.value) else 1
        self.settle(outcome, now, detail)
        self.failures = failures
        self.retry_at = now + min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), _LONGEST_PAUSE)
        return failures == 1

    def next_look(self, reassert_seconds: float) -> float:
        """When it has to be looked at again; what a parent limits, at once."""
        if self.setting is None:
            return inf
        if self.outcome is None or self.outcome in _UNFINISHED or self.setting.limited_by:
            return -inf
        if self.differs(self.setting.value):
            return -inf
        reassert = self.looked_at + reassert_seconds
        return min(reassert, self.retry_at) if self.failures else reassert


def puts_back(desired: DesiredSetting) -> bool:
    """Whether it is to have the kubelet's value again."""
    return desired.priority is Priority.RELEASE and desired.target.file in KUBELET_FILES


class TargetRecords:
    """The records by target, by folder, and in the order in which they are due.

    A value that is new, or is withdrawn, makes its target due; another reason for the same does not. ``inner`` has, by
    the folder of a container, the one below in which its runtime keeps the limits once more: what is desired for the
    first of them holds for both.
    """

    def __init__(self, codec: KernelFileCodec, forget: Callable[[Target], None]) -> None:
        """``forget`` is called for a target of which nobody desires anything any more."""
        self.inner: Mapping[str, str] = {}
        self._codec = codec
        self._forget = forget
        self._submitted: dict[str, Sequence[DesiredSetting]] = {}
        """By owner, as submitted last."""
        self._desired: dict[str, dict[Target, tuple[DesiredSetting, ...]]] = {}
        """The same by target, with what was added since."""
        self._records: dict[Target, TargetRecord] = {}
        self._below: dict[Target, set[Target]] = {}
        """The same file in the folders below, whether the target itself has a record or not."""
        self._in_folder: dict[str, set[Target]] = {}
        self._at_once: dict[Target, None] = {}
        """In the order in which they became due: who waits longest comes first."""
        self._later: list[tuple[float, int, TargetRecord]] = []
        """A heap. An entry whose time is not that of its record is none any more."""
        self._number = count()

    def __iter__(self) -> Iterator[TargetRecord]:
        return iter(self._records.values())

    def get(self, target: Target) -> TargetRecord | None:
        return self._records.get(target)

    def make(self, target: Target) -> TargetRecord:
        """The record of the target, a new one if it has none."""
        record = self._records.get(target)
        if record is None:
            record = self._records[target] = TargetRecord(target)
            self._in_folder.setdefault(target.folder, set()).add(target)
            for above in ancestors(target):
                self._below.setdefault(above, set()).add(target)
        return record

    def _drop(self, target: Target) -> None:
        record = self._records.pop(target)
        record.due = inf
        self._at_once.pop(target, None)
        _discard(self._in_folder, target.folder, target)
        for above in ancestors(target):
            _discard(self._below, above, target)

    def submit(self, owner: str, desired: Iterable[DesiredSetting]) -> None:
        """These are all the settings that the owner desires from now on. ValueError for those of another owner."""
        given = tuple(desired if not self.inner else self._with_inner(desired))
        known, self._submitted[owner] = self._submitted.get(owner), given
        if known == given:
            # Those given now are the ones that a strategy keeps, and are the same objects the next time.
            return
        by_target, before = _by_target(owner, given), self._desired.get(owner, {})
        for target in before.keys() - by_target.keys():
            self._withdraw(owner, target)
        for target, settings in by_target.items():
            if before.get(target) != settings:
                self._desire(owner, target, settings)
        self._desired[owner] = by_target

    def add(self, owner: str, desired: Iterable[DesiredSetting]) -> set[Target]:
        """These beside what the owner has submitted, or instead of those for the same targets, which are returned."""
        by_target, known = _by_target(owner, self._with_inner(desired)), self._desired.setdefault(owner, {})
        for target, settings in by_target.items():
            if known.get(target) != settings:
                self._desire(owner, target, settings)
        known.update(by_target)
        self._submitted.pop(owner, None)
        return set(by_target)

    def _desire(self, owner: str, target: Target, settings: Sequence[DesiredSetting]) -> None:
        record, valid = self.make(target), list[DesiredSetting]()
        before = {each.value for each in record.invalid if each.owner == owner}
        record.invalid = {each: why for each, why in record.invalid.items() if each.owner != owner}
        for each in settings:
            try:
                value = self._codec.canonical(target, each.value)
            except InvalidValueError as error:
                record.invalid[each] = str(error)
                if each.value not in before:
                    logger.warning("what %s desires is not possible: %s", owner, error)
                continue
            valid.append(each if value == each.value else replace(each, value=value))
        known = record.desired.get(owner)
        record.desired[owner] = tuple(valid)
        if known is None or _values(known) != _values(valid):
            self.schedule(record, -inf)

    def _withdraw(self, owner: str, target: Target) -> None:
        record = self.make(target)
        record.desired.pop(owner, None)
        record.invalid = {each: why for each, why in record.invalid.items() if each.owner != owner}
        if record.desired:
            self.schedule(record, -inf)
            return
        self._drop(target)
        self._forget(target)

    def _with_inner(self, desired: Iterable[DesiredSetting]) -> Iterator[DesiredSetting]:
        for each in desired:
            yield each
            inner = self.inner.get(each.target.folder)
            if inner is not None and each.target.file in CONTAINER_LIMITS:
                yield replace(each, target=each.target._replace(folder=inner))

    def schedule(self, record: TargetRecord, due: float) -> None:
        """Look at it then; ``-inf`` for the next time."""
        record.due = due
        if due == -inf:
            self._at_once[record.target] = None
        else:
            self._at_once.pop(record.target, None)
            if due < inf:
                heappush(self._later, (due, next(self._number), record))

    def take_due(self, now: float) -> list[TargetRecord]:
        """All that are to be looked at, those first that became due first; schedule them anew."""
        found = [self._records[target] for target in self._at_once]
        self._at_once.clear()
        while self._later and self._later[0][0] <= now:
            due, _, record = heappop(self._later)
            if record.due == due:
                record.due = -inf
                found.append(record)
        return found

    def below(self, target: Target) -> Iterable[TargetRecord]:
        """Those of the same file in the folders below."""
        return (self._records[each] for each in self._below.get(target, ()))

    def in_folder(self, folder: str) -> Iterable[TargetRecord]:
        return (self._records[each] for each in self._in_folder.get(folder, ()))


def _values(desired: Iterable[DesiredSetting]) -> list[tuple[Value, Priority]]:
    return [(each.value, each.priority) for each in desired]


def _by_target(owner: str, desired: Iterable[DesiredSetting]) -> dict[Target, tuple[DesiredSetting, ...]]:
    found: dict[Target, tuple[DesiredSetting, ...]] = {}
    for each in desired:
        if each.owner != owner:
            raise ValueError(f"{owner} submits what {each.owner} desires")
        found[each.target] = (*found.get(each.target, ()), each)
    return found


def _discard(index: dict[K, set[Target]], key: K, target: Target) -> None:
    targets = index[key]
    targets.discard(target)
    if not targets:
        del index[key]
