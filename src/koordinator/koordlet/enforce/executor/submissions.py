"""What each owner desires: all that it has submitted, and what was added since, in the records of the targets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.executor.target_records import TargetRecords
from koordinator.node.kernel_file_codec import InvalidValueError, KernelFileCodec
from koordinator.node.kernel_files import CONTAINER_LIMITS, Target, Value

logger = logging.getLogger(__name__)


class Submissions:
    """A value that is new, or is withdrawn, makes its target due; another reason for the same does not. ``inner`` has,
    by the folder of a container, the one below in which its runtime keeps the limits once more: what is desired for the
    first of them holds for both."""

    def __init__(self, records: TargetRecords, codec: KernelFileCodec, forget: Callable[[Target], None]) -> None:
        """``forget`` is called for a target of which nobody desires anything any more."""
        self.inner: Mapping[str, str] = {}
        self._records = records
        self._codec = codec
        self._forget = forget
        self._submitted: dict[str, Sequence[DesiredSetting]] = {}
        """By owner, as submitted last."""
        self._desired: dict[str, dict[Target, tuple[DesiredSetting, ...]]] = {}
        """The same by target, with what was added since."""

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
        record, valid = self._records.make(target), list[DesiredSetting]()
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
            self._records.schedule(record, -inf)

    def _withdraw(self, owner: str, target: Target) -> None:
        record = self._records.make(target)
        record.desired.pop(owner, None)
        record.invalid = {each: why for each, why in record.invalid.items() if each.owner != owner}
        if record.desired:
            self._records.schedule(record, -inf)
            return
        self._records.drop(target)
        self._forget(target)

    def _with_inner(self, desired: Iterable[DesiredSetting]) -> Iterator[DesiredSetting]:
        for each in desired:
            yield each
            inner = self.inner.get(each.target.folder)
            if inner is not None and each.target.file in CONTAINER_LIMITS:
                yield replace(each, target=each.target._replace(folder=inner))


def _values(desired: Iterable[DesiredSetting]) -> list[tuple[Value, Priority]]:
    return [(each.value, each.priority) for each in desired]


def _by_target(owner: str, desired: Iterable[DesiredSetting]) -> dict[Target, tuple[DesiredSetting, ...]]:
    found: dict[Target, tuple[DesiredSetting, ...]] = {}
    for each in desired:
        if each.owner != owner:
            raise ValueError(f"{owner} submits what {each.owner} desires")
        found[each.target] = (*found.get(each.target, ()), each)
    return found
