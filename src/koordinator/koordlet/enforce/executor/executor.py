"""Gives the kernel's files the values that features desire, and can explain every one of them.

``submit`` replaces what one owner desires; ``apply`` writes the files. Nothing is kept on disk: after a crash at any
point the features submit their settings again, the files are read, and what differs is written.

A file that the kubelet writes, too, is marked before it is changed, and a setting that is to have the kubelet's value
back counts for marked files alone: what no feature has changed is never written. The mark is on the file itself, so
that it is known after a restart, and ends with the cgroup.

Each target has one record, which says when it is to be looked at again: at once after a change, and after
``reassert_seconds`` without one, when a change by another program is corrected. So a steady node costs nothing, and a
change costs what depends on it. What the kernel refuses, or does not show afterwards, is tried again after a pause that
doubles. A cgroup that is gone is no error to the owners of its settings: containers end all the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from math import inf
from typing import Final

from koordinator.base.clock import Clock
from koordinator.koordlet.enforce.executor.arbiter import Step, ancestors, decide, elect, order
from koordinator.koordlet.enforce.executor.desired_settings import (
    IN_FORCE,
    Applied,
    DesiredSetting,
    Explanation,
    Outcome,
    Setting,
    Written,
)
from koordinator.koordlet.enforce.executor.kernel_view import KernelView
from koordinator.koordlet.enforce.executor.marks import Marks
from koordinator.koordlet.enforce.executor.target_records import TargetRecord, TargetRecords, puts_back
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.errors import FileError, MissingFileError
from koordinator.node.kernel_file_codec import KernelFileCodec
from koordinator.node.kernel_files import CPU_QUOTA, KEPT_FILES, Format, KernelFile, Root, Target, Value
from koordinator.node.kernel_writer import KernelFiles
from koordinator.node.writer_thread import UnfinishedWriteError

logger = logging.getLogger(__name__)

_WRITES: Final = 2000
_WRITING_SECONDS: Final = 0.1
"""At most so many writes at once, and for so long: what is left comes the next time. A prefix of the steps is always
safe, and a container runtime waits two seconds for an answer."""


class Executor:
    """See the module. One thread uses it."""

    def __init__(
        self,
        files: KernelFiles,
        codec: KernelFileCodec,
        clock: Clock,
        *,
        reassert_seconds: float = 60.0,
        observe_only: bool = False,
        restores_unmarked: bool = False,
        writes_at_once: int = _WRITES,
        on_applied: Callable[[Applied], None] = lambda _: None,
    ) -> None:
        """``restores_unmarked``: put back the kubelet's values in files without a mark, too, since an earlier version
        may have changed them. ``on_applied`` is called with what was written."""
        self._files = files
        self._codec = codec
        self._clock = clock
        self._reassert = reassert_seconds
        self._observe_only = observe_only
        self._restores_unmarked = restores_unmarked
        self._writes = writes_at_once
        self._on_applied = on_applied
        self._marks = Marks(files, codec)
        self._records = TargetRecords(codec, self._marks.forget)

    def reassert_every(self, seconds: float) -> None:
        """Instead of ``reassert_seconds``, from the next look at each file on."""
        self._reassert = seconds

    def only_observe(self, is_only: bool) -> None:
        """Whether nothing is written from now on. What was only observed until now is written the next time."""
        if is_only != self._observe_only:
            self._observe_only = is_only
            self.look_again()

    def set_inner_folders(self, inner: Mapping[str, str]) -> None:
        """Containers whose limits the runtime keeps a second time, in a folder below theirs: both get what is desired
        for the first. It holds for what is submitted from now on."""
        self._records.inner = inner

    def submit(self, owner: str, desired: Iterable[DesiredSetting]) -> None:
        """As ``TargetRecords.submit``. A value that nobody desires any more stays as it is in the kernel."""
        self._records.submit(owner, desired)

    def add(self, owner: str, desired: Iterable[DesiredSetting]) -> set[Target]:
        """As ``TargetRecords.add``."""
        return self._records.add(owner, desired)

    def look_again(self, folder: str | None = None, *, derived: bool = True) -> set[Target]:
        """Read the files, all or those of a cgroup, the next time, since another program may have written them: these.
        Without ``derived``, not the quotas that follow from the kubelet's: if it has just written another, ours is
        old."""
        found = [
            record
            for record in (self._records if folder is None else self._records.in_folder(folder))
            if derived or record.target.file is not CPU_QUOTA or record.value == NO_LIMIT
        ]
        for record in found:
            self._records.schedule(record, -inf)
        return {record.target for record in found}

    def present(self, target: Target) -> Value | None:
        """What the kernel shows; None if it shows nothing that can be understood."""
        return KernelView(self._files, self._codec).read(target)

    def lacks(self, target: Target) -> bool:
        """Whether the target's cgroup is there, without the file."""
        path = self._codec.path(target)
        return path is None or (self._files.exists(self._codec.folder(target)) and not self._files.exists(path))

    def present_devices(self, file: KernelFile, folder: str) -> dict[str, Value]:
        """What a file with a line for each block device shows: the number of the device -> its value."""
        return KernelView(self._files, self._codec).devices(file, folder)

    def kept(self, target: Target) -> Value | None:
        """Of KEPT_FILES: what was there before koordlet changed it; None if it has not, or that is not known."""
        return self._marks.kept_value(target)

    def targets_below(self, file: KernelFile, folder: str) -> list[Target]:
        """Those of the file that have settings, in a cgroup and below it."""
        targets = (record.target for record in self._records if record.setting is not None)
        return [each for each in targets if each.file is file and f"{each.folder}/".startswith(f"{folder}/")]

    def explain(self, target: Target) -> Explanation | None:
        """Who desires what of a target, what won, and what became of it; None if nobody does."""
        record = self._records.get(target)
        return None if record is None else self._explanation(record)

    def explanations(self) -> list[Explanation]:
        """All of them, in the order of their paths."""
        return sorted(filter(None, map(self._explanation, self._records)), key=lambda each: each.path)

    @property
    def invalid_settings(self) -> Mapping[DesiredSetting, str]:
        """Those whose values their files cannot hold, and why. They are ignored."""
        return {each: why for record in self._records for each, why in record.invalid.items()}

    def apply(self, only: Set[Target] | None = None, *, look_for: float = inf) -> Applied:
        """Write what differs, of all targets that are due or of ``only`` these, whose cost does not depend on how many
        others there are. After ``look_for`` seconds of reading, what is left remains due. Raises nothing for what the
        kernel does not take: that is in the result."""
        now = self._clock.monotonic()
        if only is None:
            due = self._records.take_due(now)
        else:
            due = [record for target in only if (record := self._records.get(target)) is not None]
        try:
            applied = self._apply(due, now, now + look_for)
        except BaseException:
            # What was not finished is due as before.
            for record in due:
                self._records.schedule(record, -inf)
            raise
        if not self._observe_only:
            self._on_applied(applied)
        return applied

    def _apply(self, due: Sequence[TargetRecord], now: float, look_until: float) -> Applied:
        view, written = KernelView(self._files, self._codec), list[Written]()
        records, is_everything = self._decide(due, view, look_until)
        tried, may_go_on = self._write_all(records, view, written, now)
        self._read_back(tried, view, now)
        for record in records:
            self._finish(record)
        failed = [record for record in records if record.failures and record.looked_at == now]
        explanations = tuple(filter(None, map(self._explanation, failed)))
        return Applied(tuple(written), explanations, may_go_on or not is_everything)

    def _is_needed(self, record: TargetRecord) -> bool:
        """Whether anything is to be done: what koordlet has not changed need not be put back."""
        if not record.all:
            return False
        return self._restores_unmarked or not all(map(puts_back, record.all)) or self._marks.has(record.target)

    def _decide(
        self, due: Sequence[TargetRecord], view: KernelView, look_until: float
    ) -> tuple[list[TargetRecord], bool]:
        """Gives their settings to the records that are due, and to those below that depend on them: these, and whether
        they are all. For others there was no time, and they are due as before."""
        records, left = dict[Target, TargetRecord](), list[TargetRecord]()
        for number, record in enumerate(due):
            if number and self._clock.monotonic() >= look_until:
                left = [each for each in due[number:] if each.target not in records]
                break
            if not self._is_needed(record):
                record.setting, record.outcome, record.failures = None, None, 0
                self._records.schedule(record, inf)
                continue
            records[record.target] = record
            shown = view.read(record.target)
            below = [each for each in self._records.below(record.target) if each.setting is not None]
            if below and (record.setting is None or not shown == record.setting.value == elect(record.all).value):
                records.update((each.target, each) for each in below)
        for target in records:
            for each in (target, *ancestors(target)):
                if each not in view.values:
                    self._look_at(each, view)
        desired = (each for record in records.values() for each in record.all)
        for target, setting in decide(desired, view.values).items():
            records[target].setting = setting
        for record in left:
            self._records.schedule(record, -inf)
        return list(records.values()), not left

    def _look_at(self, target: Target, view: KernelView) -> None:
        """What is known to be in force need not be read."""
        record = self._records.get(target)
        if record is not None and record.outcome is Outcome.UNSUPPORTED:
            view.assume(target, None)
        elif record is not None and (value := record.in_force) is not None:
            view.assume(target, value)
        else:
            view.read(target)

    def _write_all(
        self, records: Iterable[TargetRecord], view: KernelView, written: list[Written], now: float
    ) -> tuple[list[TargetRecord], bool]:
        """Those to which something was written, and whether steps are left that may follow at once."""
        started = self._clock.monotonic()
        wanted = {record.target: record for record in records if self._is_to_be_written(record, view, now)}
        settings = {target: record.setting for target, record in wanted.items() if record.setting is not None}
        steps, given_up, tried = order(settings, view.values), set[Target](), dict[Target, TargetRecord]()
        for number, step in enumerate(steps):
            record = wanted[step.target]
            if step.target in given_up:
                continue
            if (obstacle := view.obstacle(step, self._records)) is not None:
                record.settle(Outcome.NOT_WRITTEN_YET, now, f"{obstacle} does not allow it yet")
                given_up.add(step.target)
                continue
            reason = ""
            if len(written) >= self._writes or self._clock.monotonic() - started >= _WRITING_SECONDS:
                reason, may_go_on = "enough was written at once", True
            else:
                try:
                    is_written = self._write(step, record, view, written, now)
                except UnfinishedWriteError as error:
                    reason, may_go_on = str(error), False
            if reason:
                for left in {step.target for step in steps[number:]} - given_up:
                    wanted[left].settle(Outcome.NOT_WRITTEN_YET, now, reason)
                    tried.pop(left, None)
                return list(tried.values()), may_go_on
            if is_written:
                tried[step.target] = record
            else:
                given_up.add(step.target)
                tried.pop(step.target, None)
        return list(tried.values()), False

    def _is_to_be_written(self, record: TargetRecord, view: KernelView, now: float) -> bool:
        """Not what is as it should be, nor what is not there."""
        setting, target = record.setting, record.target
        if setting is None:
            return False
        if view.is_there(target, setting.value):
            if record.in_force == setting.value and not view.was_read(target):
                return False
            is_ours = record.outcome is Outcome.WRITTEN and not record.differs(setting.value)
            outcome = Outcome.WRITTEN if is_ours else Outcome.THERE_ALREADY
            record.settle(outcome, now, is_inherited=view.is_inherited(target))
            # It may go at any moment. What another value was kept of is marked when that is overwritten.
            with suppress(MissingFileError):
                if target.file not in KEPT_FILES:
                    self._mark(record, view)
            return False
        if view.values.get(target) is None:
            is_known_absent = record.outcome is Outcome.UNSUPPORTED and not view.was_read(target)
            if is_known_absent or not self._has_file(record, now):
                return False
        return record.may_write(now)

    def _has_file(self, record: TargetRecord, now: float) -> bool:
        """Whether what shows nothing can be written; a group of resctrl is made for it."""
        target = record.target
        path, folder = self._codec.path(target), self._codec.folder(target)
        if target.file.root is Root.RESCTRL and not self._observe_only and not self._files.exists(folder):
            try:
                self._files.make_folder(folder)
            except UnfinishedWriteError as error:
                record.settle(Outcome.NOT_WRITTEN_YET, now, str(error))
                return False
            except FileError as error:
                self._fail(record, Outcome.REFUSED, now, str(error))
                return False
            return True
        if path is None:
            record.settle(Outcome.UNSUPPORTED, now, "this version of cgroups has none")
        elif not self._files.exists(folder):
            record.settle(Outcome.VANISHED, now, f"{folder} does not exist")
        elif not self._files.exists(path):
            record.settle(Outcome.UNSUPPORTED, now, f"{path} does not exist")
        else:
            return True
        return False

    def _write(self, step: Step, record: TargetRecord, view: KernelView, written: list[Written], now: float) -> bool:
        """Whether the kernel took it. UnfinishedWriteError if it has not finished."""
        path = self._codec.path(step.target)
        assert path is not None
        try:
            self._mark(record, view)
            for text in self._codec.texts(step.target, step.value, view.content_or_nothing(path)):
                self._write_text(record, path, text, written, now)
        except MissingFileError as error:
            is_gone = not self._files.exists(self._codec.folder(step.target))
            record.settle(Outcome.VANISHED if is_gone else Outcome.UNSUPPORTED, now, str(error))
            return False
        except UnfinishedWriteError:
            raise
        except FileError as error:
            self._fail(record, Outcome.REFUSED, now, str(error))
            return False
        view.assume(step.target, step.value)
        for child in self._records.below(step.target):
            if child.is_inherited:
                child.looked_at = -inf
                self._records.schedule(child, -inf)
        return True

    def _mark(self, record: TargetRecord, view: KernelView) -> None:
        """Note that the file is not the kubelet's alone any more."""
        if not self._observe_only:
            self._marks.note_change(record, view)

    def _write_text(self, record: TargetRecord, path: str, text: str, written: list[Written], now: float) -> None:
        setting, target = record.setting, record.target
        assert setting is not None
        if self._observe_only:
            if record.outcome is not Outcome.ONLY_OBSERVED or record.differs(setting.value):
                logger.info("observe only: %s would get %s (%s: %s)", path, text.strip(), *_why(setting))
            record.settle(Outcome.ONLY_OBSERVED, now)
            written.append(Written(path, text, setting))
            return
        started = self._clock.monotonic()
        try:
            if target.file.format is Format.GROUP:
                self._files.remove_folder(self._codec.folder(target))
            else:
                self._files.write(path, text)
        except (MissingFileError, UnfinishedWriteError):
            raise
        except FileError as error:
            if target.file.format is not Format.TASKS:
                raise
            # A task that has ended, or that may not be moved: it must not keep the others out.
            logger.debug("%s: %s", target, error)
            return
        written.append(Written(path, text, setting, self._clock.monotonic() - started))
        logger.debug("%s: %s (%s: %s)", path, text.strip(), *_why(setting))

    def _read_back(self, tried: Iterable[TargetRecord], view: KernelView, now: float) -> None:
        if self._observe_only:
            return
        view.forget_contents()
        for record in tried:
            shown, setting = view.read(record.target), record.setting
            assert setting is not None
            if view.is_there(record.target, setting.value) or record.target.file.format is Format.TASKS:
                record.settle(Outcome.WRITTEN, now)
            elif shown is None and not self._files.exists(self._codec.folder(record.target)):
                record.settle(Outcome.VANISHED, now, "gone since it was written")
            else:
                self._fail(record, Outcome.NOT_HELD, now, f"it shows {shown!r}")

    def _fail(self, record: TargetRecord, outcome: Outcome, now: float, detail: str) -> None:
        if record.fail(outcome, now, detail):
            logger.warning("%s: %s: %s", record.target, outcome.value, detail)

    def _finish(self, record: TargetRecord) -> None:
        """When to look at it again. What has the kubelet's value again needs no look."""
        setting = record.setting
        is_restored = setting is not None and puts_back(setting.winner) and record.outcome in IN_FORCE
        if is_restored and self._marks.remove(record.target):
            self._records.schedule(record, -inf)
        else:
            self._records.schedule(record, record.next_look(self._reassert))

    def _explanation(self, record: TargetRecord) -> Explanation | None:
        return record.explanation(self._codec.path(record.target) or str(record.target))


def _why(setting: Setting) -> tuple[str, str]:
    return " and ".join(setting.owners), setting.winner.reason
