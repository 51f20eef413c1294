"""Brings the kernel's files to the values that features wish, and can explain every one of them.

``submit`` replaces the wishes of one owner; ``apply`` writes the files. Nothing is kept on disk: after a crash at
any point the features submit their wishes again, the files are read, and what differs is written.

A file that the kubelet writes, too, is marked before it is changed, and a wish to have the kubelet's value back counts
for marked files alone: what no feature has changed is never written. The mark is on the file itself, so that it is
known after a restart, and ends with the cgroup.

What is written already is not read again until ``REASSERT`` seconds have passed, so that a steady node costs nothing;
a change by another program is corrected then. What the kernel refuses, or does not show afterwards, is tried again
after a pause that doubles. A cgroup that is gone is forgotten without an error to the owners of its wishes: containers
end all the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from math import inf
from typing import Final

from koordinator.base.clock import Clock
from koordinator.koordlet.executor.arbiter import Step, ancestors, decide, order
from koordinator.koordlet.executor.family import Family, family_of
from koordinator.koordlet.executor.marks import Marks, kept_value, needed
from koordinator.koordlet.executor.progress import Progress, TargetState
from koordinator.koordlet.executor.round import Pass, Round, Written
from koordinator.koordlet.executor.submitted_wishes import SubmittedWishes
from koordinator.koordlet.executor.wishes import Explanation, Outcome, Setting, Wish
from koordinator.node.errors import FileError, MissingFileError
from koordinator.node.kernel_file_codec import InvalidValueError, KernelFileCodec, devices_of
from koordinator.node.kernel_files import KEPT_FILES, Format, KernelFile, Root, Target, Value
from koordinator.node.kernel_writer import KernelFiles
from koordinator.node.writer_thread import UnfinishedWriteError

logger = logging.getLogger(__name__)

_WRITES: Final = 2000
"""At most so many writes in one round: what is left comes in the next. A prefix of the steps is always safe."""


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
        writes_per_round: int = _WRITES,
        on_round: Callable[[Round], None] = lambda _: None,
    ) -> None:
        """``restores_unmarked``: put back the kubelet's values in files without a mark, too, since an earlier version
        may have changed them."""
        self._files = files
        self._codec = codec
        self._clock = clock
        self._observe_only = observe_only
        self._restores_unmarked = restores_unmarked
        self._writes = writes_per_round
        self._on_round = on_round
        self._reassert = reassert_seconds
        self._wishes = SubmittedWishes()
        self._families: dict[str, Family] = {}

    def set_inner_folders(self, inner: Mapping[str, str]) -> None:
        """Containers whose limits the runtime keeps a second time, in a folder below theirs: both get what is wished
        for the first. It holds for what is submitted from now on."""
        self._wishes.inner = inner

    def submit(self, owner: str, wishes: Iterable[Wish]) -> None:
        """These are all the wishes of the owner from now on. A value without a wish stays as it is in the kernel."""
        if (changed := self._wishes.replace(owner, wishes)) is not None:
            self._distribute(owner, changed)

    def add(self, owner: str, wishes: Iterable[Wish]) -> set[Target]:
        """These beside what the owner has submitted, or instead of those for the same targets, which are returned."""
        targets, changed = self._wishes.add(owner, wishes)
        if changed is not None:
            self._distribute(owner, changed)
        return targets

    def _distribute(self, owner: str, wishes: Iterable[Wish]) -> None:
        by_family: dict[str, list[Wish]] = {}
        for wish in wishes:
            by_family.setdefault(family_of(wish.target.file), []).append(wish)
        for name in by_family.keys() - self._families.keys():
            self._families[name] = Family(Progress(self._reassert), Marks(self._files, self._codec))
        for name, family in self._families.items():
            family.replace(owner, tuple(by_family.get(name, ())))

    def look_again(self, folder: str, *, derived: bool = True) -> set[Target]:
        """Read the files of a cgroup in the next round, since another program may have written them: these. Without
        ``derived``, not the quotas that follow from the kubelet's: if it has just written another, ours is old."""
        found = set[Target]()
        for family in self._families.values():
            found |= family.progress.look_again(folder, derived=derived)
            family.next_look = -inf
        return found

    def present(self, target: Target) -> Value | None:
        """What the kernel shows; None if it shows nothing that can be understood."""
        return self._read(target, {})

    def kept(self, target: Target) -> Value | None:
        """Of KEPT_FILES: what was there before koordlet changed it; None if it has not, or that is not known."""
        return kept_value(self._files, self._codec, target)

    def targets_below(self, file: KernelFile, folder: str) -> list[Target]:
        """Those of the file that have wishes, in a cgroup and below it."""
        family = self._families.get(family_of(file))
        targets = () if family is None else family.settings
        return [each for each in targets if each.file is file and f"{each.folder}/".startswith(f"{folder}/")]

    def present_devices(self, file: KernelFile, folder: str) -> dict[str, Value]:
        """What a file with a line for each block device shows: the number of the device -> its value."""
        path, contents = self._codec.path(Target(file, folder)), dict[str, str]()
        try:
            devices = [] if path is None else devices_of(self._files.read(path))
        except FileError:
            return {}
        shown = {device: self._read(Target(file, folder, device), contents) for device in devices}
        return {device: value for device, value in shown.items() if value is not None}

    def apply(self, only: Set[Target] | None = None) -> Round:
        """Write what differs, of all targets unless ``only`` some are to be looked at: what those cost does not depend
        on how many others there are. Raises nothing for what the kernel does not take: that is in the result."""
        now = self._clock.monotonic()
        written: list[Written] = []
        failed: list[Explanation] = []
        deferred = 0
        for _, family in sorted(self._families.items()):
            if now < family.next_look:
                continue
            run = Pass(now, family, self._writes - len(written))
            left = self._bring(run, only)
            written += run.written
            failed += [each for target in run.broken if (each := self.explain(target)) and each.failures]
            deferred += left
            if only is None:
                due = min(map(family.progress.due_at, family.settings.values()), default=inf)
                family.next_look = -inf if left or family.unmark_restored() else due
        result = Round(tuple(written), tuple(failed), deferred)
        self._on_round(result)
        return result

    def _bring(self, run: Pass, only: Set[Target] | None) -> int:
        """The files of a family to what is wished; how many steps are left for the next round."""
        family, progress, left = run.family, run.family.progress, 0
        wishes = self._valid_wishes(family, only)
        if only is None:
            family.marks.keep({wish.target for wish in wishes})
        if not self._restores_unmarked:
            wishes = needed(wishes, family.marks)
        settings = decide(wishes, {})
        due = {target for target, setting in settings.items() if progress.is_due(target, setting.value, run.now)}
        if due:
            present = {target: self._present(target, target in due, run) for target in self._related(settings)}
            settings = decide(wishes, present)
            run.see(present)
            self._record_present(settings, present, due, run)
            wanted = {
                target: setting
                for target, setting in settings.items()
                if target not in run.broken and progress.may_write(target, setting.value, run.now)
            }
            left = self._write_all(order(wanted, present), wanted, run)
            self._read_back(wanted, run)
        if only is not None:
            family.settings = {**family.settings, **settings}
            return left
        family.settings = settings
        progress.keep(settings)
        return left

    def explain(self, target: Target) -> Explanation | None:
        """The wishes for a target, the one that won, and what became of it; None for a target without wishes."""
        family = self._families.get(family_of(target.file))
        setting = None if family is None else family.settings.get(target)
        if family is None or setting is None:
            return None
        state = family.progress.state(target)
        path = self._codec.path(target) or str(target)
        if state is None:
            return Explanation(path, setting, Outcome.NOT_WRITTEN_YET)
        return Explanation(path, setting, state.outcome, state.detail, state.failures)

    def explanations(self) -> list[Explanation]:
        """All of them, in the order of their paths."""
        targets = (target for family in self._families.values() for target in family.settings)
        return sorted(filter(None, map(self.explain, targets)), key=lambda each: each.path)

    @property
    def invalid_wishes(self) -> Mapping[Wish, str]:
        """Wishes of values that their files cannot hold, and why. They are ignored."""
        return {wish: why for family in self._families.values() for wish, why in family.invalid.items()}

    def _valid_wishes(self, family: Family, only: Set[Target] | None) -> list[Wish]:
        valid: list[Wish] = []
        invalid: dict[Wish, str] = {} if only is None else dict(family.invalid)
        for wish in (wish for wishes in family.wishes.values() for wish in wishes):
            if only is not None and wish.target not in only:
                continue
            try:
                value = self._codec.canonical(wish.target, wish.value)
            except InvalidValueError as error:
                invalid[wish] = str(error)
                if wish not in family.invalid:
                    logger.warning("a wish of %s is not granted: %s", wish.owner, error)
                continue
            valid.append(
                wish if value == wish.value else Wish(wish.owner, wish.target, value, wish.reason, wish.priority)
            )
        family.invalid = invalid
        return valid

    def _related(self, settings: Mapping[Target, Setting]) -> dict[Target, None]:
        """Everything that a decision depends on, each once."""
        related = dict.fromkeys(settings)
        for target in settings:
            related.update(dict.fromkeys(ancestors(target)))
        return related

    def _present(self, target: Target, is_due: bool, run: Pass) -> Value | None:
        if not is_due and run.family.progress.is_absent(target):
            return None
        observed = None if is_due else run.family.progress.observed(target)
        return self._read(target, run.contents) if observed is None else observed

    def _read(self, target: Target, contents: dict[str, str]) -> Value | None:
        """``contents`` of files that were read before, by path; one that is read now is added."""
        path = self._codec.path(target)
        if path is None:
            return None
        try:
            if path not in contents:
                contents[path] = self._files.read(path)
            in_force = self._codec.in_force_path(target) if not contents[path].strip() else None
            return self._codec.decode(target, contents[path] if in_force is None else self._files.read(in_force))
        except FileError as error:
            if target.file.format is Format.GROUP and isinstance(error, MissingFileError):
                return 0
            # Whether it can be written is found out by writing; what has never been there shows nothing.
            return None

    def _record_present(
        self,
        settings: Mapping[Target, Setting],
        present: Mapping[Target, Value | None],
        due: Set[Target],
        run: Pass,
    ) -> None:
        """Leave aside what is as it should be, and what is not there to be written."""
        for target, setting in settings.items():
            if target not in due and run.family.progress.observed(target) == setting.value:
                # It was not read in this round.
                continue
            if self._is_there(target, setting.value, present[target]):
                state = run.family.progress.state(target)
                outcome = Outcome.THERE_ALREADY if state is None or state.value != setting.value else state.outcome
                if outcome not in (Outcome.WRITTEN, Outcome.THERE_ALREADY):
                    outcome = Outcome.THERE_ALREADY
                there = TargetState(setting.value, outcome, run.now, is_inherited=self._is_inherited(target, run))
                run.family.progress.record(target, there)
                # It may go at any moment. What another value was kept of is marked when that is overwritten.
                with suppress(MissingFileError):
                    if target.file not in KEPT_FILES:
                        self._mark(setting, run)
            elif present[target] is None and target not in due and run.family.progress.is_absent(target):
                run.broken.add(target)
            elif present[target] is None:
                self._check_absent(target, setting, run)

    def _is_there(self, target: Target, value: Value, shown: Value | None) -> bool:
        if target.file.format is Format.TASKS and isinstance(value, frozenset) and isinstance(shown, frozenset):
            # Tasks end, and those that others have put there are none of ours.
            return value <= shown
        return value == shown

    def _is_inherited(self, target: Target, run: Pass) -> bool:
        path = self._codec.path(target)
        content = run.contents.get(path) if path is not None else None
        return content is not None and not content.strip() and self._codec.in_force_path(target) is not None

    def _check_absent(self, target: Target, setting: Setting, run: Pass) -> None:
        path, folder = self._codec.path(target), self._codec.folder(target)
        if target.file.root is Root.RESCTRL and not self._observe_only and not self._files.exists(folder):
            try:
                self._files.make_folder(folder)
            except UnfinishedWriteError as error:
                self._leave(target, setting.value, Outcome.NOT_WRITTEN_YET, str(error), run)
            except FileError as error:
                self._fail(target, setting.value, Outcome.REFUSED, str(error), run)
            return
        if path is None:
            self._leave(target, setting.value, Outcome.UNSUPPORTED, "this version of cgroups has none", run)
        elif not self._files.exists(folder):
            self._leave(target, setting.value, Outcome.VANISHED, f"{folder} does not exist", run)
        elif not self._files.exists(path):
            self._leave(target, setting.value, Outcome.UNSUPPORTED, f"{path} does not exist", run)

    def _write_all(self, steps: list[Step], settings: Mapping[Target, Setting], run: Pass) -> int:
        """How many steps are left for the next round."""
        for number, step in enumerate(steps):
            if step.target in run.broken:
                continue
            setting = settings[step.target]
            if len(run.written) >= run.writes_left:
                for left in steps[number:]:
                    self._postpone(left, settings[left.target], "enough was written in this round", run)
                return len(steps) - number
            if (obstacle := run.obstacle(step)) is not None:
                self._postpone(step, setting, f"{obstacle} does not allow it yet", run)
                continue
            try:
                self._write(step, setting, run)
            except UnfinishedWriteError as error:
                for left in steps[number:]:
                    self._postpone(left, settings[left.target], str(error), run)
                return len(steps) - number
        return 0

    def _postpone(self, step: Step, setting: Setting, detail: str, run: Pass) -> None:
        if step.target not in run.broken:
            self._leave(step.target, setting.value, Outcome.NOT_WRITTEN_YET, detail, run)

    def _write(self, step: Step, setting: Setting, run: Pass) -> None:
        path = self._codec.path(step.target)
        if path is None:
            return
        try:
            self._mark(setting, run)
            for text in self._codec.texts(step.target, step.value, run.contents.get(path, "")):
                self._write_text(step, setting, path, text, run)
            run.live[step.target] = step.value
            for child in run.children.get(step.target, ()):
                run.family.progress.parent_changed(child)
        except MissingFileError as error:
            gone = not self._files.exists(self._codec.folder(step.target))
            self._leave(step.target, setting.value, Outcome.VANISHED if gone else Outcome.UNSUPPORTED, str(error), run)
        except UnfinishedWriteError:
            raise
        except FileError as error:
            self._fail(step.target, setting.value, Outcome.REFUSED, str(error), run)

    def _mark(self, setting: Setting, run: Pass) -> None:
        """Note that the file is not the kubelet's alone any more."""
        if not self._observe_only:
            run.family.marks.note_change(setting.winner, run.contents, run.family.progress.observed(setting.target))

    def _write_text(self, step: Step, setting: Setting, path: str, text: str, run: Pass) -> None:
        if self._observe_only:
            state = run.family.progress.state(step.target)
            if state is None or state.value != setting.value:
                logger.info("observe only: %s would get %s (%s: %s)", path, text.strip(), *_why(setting))
            run.family.progress.record(step.target, TargetState(setting.value, Outcome.ONLY_OBSERVED, run.now))
            run.written.append(Written(path, text, setting))
            return
        started = self._clock.monotonic()
        try:
            if step.target.file.format is Format.GROUP:
                self._files.remove_folder(self._codec.folder(step.target))
            else:
                self._files.write(path, text)
        except (MissingFileError, UnfinishedWriteError):
            raise
        except FileError as error:
            if step.target.file.format is not Format.TASKS:
                raise
            # A task that has ended, or that may not be moved: it must not keep the others out.
            logger.debug("%s: %s", step.target, error)
            return
        run.written.append(Written(path, text, setting, self._clock.monotonic() - started))
        logger.debug("%s: %s (%s: %s)", path, text.strip(), *_why(setting))

    def _read_back(self, settings: Mapping[Target, Setting], run: Pass) -> None:
        if self._observe_only:
            return
        touched = {written.setting.target for written in run.written} - run.broken
        run.contents.clear()
        for target in touched:
            setting = settings[target]
            shown = self._read(target, run.contents)
            if self._is_there(target, setting.value, shown) or target.file.format is Format.TASKS:
                run.family.progress.record(target, TargetState(setting.value, Outcome.WRITTEN, run.now))
            elif shown is None and not self._files.exists(self._codec.folder(target)):
                self._leave(target, setting.value, Outcome.VANISHED, "gone since it was written", run)
            else:
                self._fail(target, setting.value, Outcome.NOT_HELD, f"it shows {shown!r}", run)

    def _leave(self, target: Target, value: Value, outcome: Outcome, detail: str, run: Pass) -> None:
        run.broken.add(target)
        run.family.progress.record(target, TargetState(value, outcome, run.now, detail))

    def _fail(self, target: Target, value: Value, outcome: Outcome, detail: str, run: Pass) -> None:
        if run.family.progress.failed(target, value, outcome, detail, run.now):
            logger.warning("%s: %s: %s", target, outcome.value, detail)
        run.broken.add(target)


def _why(setting: Setting) -> tuple[str, str]:
    return " and ".join(setting.owners), setting.winner.reason
