"""What the kernel shows while the executor applies settings: each file is read once, and what was written is known."""

from __future__ import annotations

from koordinator.koordlet.enforce.executor.arbiter import Step, allows, ancestors
from koordinator.koordlet.enforce.executor.target_records import TargetRecords
from koordinator.node.errors import FileError, MissingFileError
from koordinator.node.kernel_file_codec import KernelFileCodec, devices_of
from koordinator.node.kernel_files import Format, KernelFile, Target, Value
from koordinator.node.kernel_writer import KernelFiles


class KernelView:
    """Of one ``apply``, or of one question."""

    def __init__(self, files: KernelFiles, codec: KernelFileCodec) -> None:
        self._files = files
        self._codec = codec
        self._contents: dict[str, str] = {}
        self._read = set[Target]()
        self.values: dict[Target, Value | None] = {}
        """What was read, assumed or written; None where the kernel shows nothing of the target."""

    def read(self, target: Target) -> Value | None:
        """What the target's file shows now; None if it shows nothing that can be understood."""
        value = self.values[target] = self._decoded(target)
        self._read.add(target)
        return value

    def was_read(self, target: Target) -> bool:
        return target in self._read

    def assume(self, target: Target, value: Value | None) -> None:
        """What was read, or written, is what the kernel has."""
        self.values[target] = value

    def devices(self, file: KernelFile, folder: str) -> dict[str, Value]:
        """What a file with a line for each block device shows, by the number of the device."""
        path = self._codec.path(Target(file, folder))
        try:
            numbers = [] if path is None else devices_of(self.content(path))
        except FileError:
            return {}
        shown = {number: self.read(Target(file, folder, number)) for number in numbers}
        return {number: value for number, value in shown.items() if value is not None}

    def content(self, path: str) -> str:
        """FileError if there is none to read."""
        if path not in self._contents:
            self._contents[path] = self._files.read(path)
        return self._contents[path]

    def content_or_nothing(self, path: str) -> str:
        """What was read of the file, if it was."""
        return self._contents.get(path, "")

    def forget_contents(self) -> None:
        """What is read from now on is read anew."""
        self._contents.clear()

    def is_inherited(self, target: Target) -> bool:
        """Whether the file was empty, so that the value is a parent's."""
        path = self._codec.path(target)
        content = self._contents.get(path) if path is not None else None
        return content is not None and not content.strip() and self._codec.in_force_path(target) is not None

    def is_there(self, target: Target, value: Value) -> bool:
        """Whether the kernel shows the value."""
        shown = self.values.get(target)
        if target.file.format is Format.TASKS and isinstance(value, frozenset) and isinstance(shown, frozenset):
            # Tasks end, and those that others have put there are none of ours.
            return value <= shown
        return value == shown

    def obstacle(self, step: Step, records: TargetRecords) -> Target | None:
        """A parent that has less, or a child that has more, than the step would give: since one of them was refused."""
        for above in ancestors(step.target):
            if not allows(step.target.file, self.values.get(above), step.value):
                return above
        for child in records.below(step.target):
            if not allows(step.target.file, step.value, self.values.get(child.target)):
                return child.target
        return None

    def _decoded(self, target: Target) -> Value | None:
        path = self._codec.path(target)
        if path is None:
            return None
        try:
            content = self.content(path)
            in_force = self._codec.in_force_path(target) if not content.strip() else None
            return self._codec.decode(target, content if in_force is None else self._files.read(in_force))
        except FileError as error:
            if target.file.format is Format.GROUP and isinstance(error, MissingFileError):
                return 0
            # Whether it can be written is found out by writing; what has never been there shows nothing.
            return None
