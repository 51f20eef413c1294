"""Which of the files that the kubelet writes, too, were changed by koordlet: by this process or by an earlier one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from koordinator.koordlet.executor.wishes import Priority, Wish
from koordinator.node.errors import FileError
from koordinator.node.kernel_file_codec import KernelFileCodec
from koordinator.node.kernel_files import KEPT_FILES, KUBELET_FILES, Target, Value
from koordinator.node.kernel_writer import KernelFiles

_CHANGED: Final = "1"
"""The note of files whose value from the kubelet follows from the pod."""


class Marks:
    """Looks at each file once."""

    def __init__(self, files: KernelFiles, codec: KernelFileCodec) -> None:
        self._files = files
        self._codec = codec
        self._known: dict[Target, bool] = {}

    def has(self, target: Target) -> bool:
        known = self._known.get(target)
        if known is None:
            path = self._codec.path(target)
            known = self._known[target] = path is not None and self._files.mark_of(path) is not None
        return known

    def note_change(self, wish: Wish, contents: Mapping[str, str], ours: Value | None) -> None:
        """Before the file is changed as is wished. MissingFileError if it is gone. ``contents`` are those of files that
        were read in this round, by path; ``ours`` is what koordlet has written last, if that is known."""
        target, path = wish.target, self._codec.path(wish.target)
        if path is None or target.file not in KUBELET_FILES or puts_back(wish):
            return
        note, is_ours = _CHANGED, True
        if target.file in KEPT_FILES:
            shown = contents[path] if path in contents else self._files.read(path)
            # The kubelet may have written the file anew since koordlet has.
            note, is_ours = shown.strip(), ours is None or self._codec.decode(target, shown) == ours
        if not (self.has(target) and is_ours):
            self._files.mark(path, note)
            self._known[target] = True

    def remove(self, target: Target) -> None:
        """When the file has its value from the kubelet again."""
        path = self._codec.path(target)
        if path is not None:
            self._files.unmark(path)
        self._known[target] = False

    def keep(self, targets: Collection[Target]) -> None:
        """Forget all others."""
        self._known = {target: known for target, known in self._known.items() if target in targets}


def needed(wishes: list[Wish], marks: Marks) -> list[Wish]:
    """Without those that would put back what koordlet has not changed."""
    changed = {wish.target for wish in wishes if not puts_back(wish)}
    return [wish for wish in wishes if wish.target in changed or marks.has(wish.target)]


def puts_back(wish: Wish) -> bool:
    """Whether the wish is to have the kubelet's value again."""
    return wish.priority is Priority.RELEASE and wish.target.file in KUBELET_FILES


def kept_value(files: KernelFiles, codec: KernelFileCodec, target: Target) -> Value | None:
    """What the file showed before koordlet changed it; None if it has not."""
    path = codec.path(target)
    note = None if path is None else files.mark_of(path)
    try:
        return None if note is None else codec.decode(target, note)
    except FileError:
        # Not a note of ours.
        return None
