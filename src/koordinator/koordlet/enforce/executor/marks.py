"""Which of the files that the kubelet writes, too, were changed by koordlet: by this process or by an earlier one."""

from __future__ import annotations

from typing import Final

from koordinator.koordlet.enforce.executor.kernel_view import KernelView
from koordinator.koordlet.enforce.executor.target_records import TargetRecord, puts_back
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

    def note_change(self, record: TargetRecord, view: KernelView) -> None:
        """Before the file gets its setting. MissingFileError if it is gone."""
        target, path = record.target, self._codec.path(record.target)
        if path is None or record.setting is None or target.file not in KUBELET_FILES:
            return
        if puts_back(record.setting.winner):
            return
        note, is_ours = _CHANGED, True
        if target.file in KEPT_FILES:
            shown = view.content(path)
            # The kubelet may have written the file anew since koordlet has.
            is_ours = record.in_force is None or self._codec.decode(target, shown) == record.in_force
            note = shown.strip()
        if not (self.has(target) and is_ours):
            self._files.mark(path, note)
            self._known[target] = True

    def remove(self, target: Target) -> bool:
        """When the file has its value from the kubelet again. Whether it may have had a mark."""
        if self._known.get(target) is False:
            return False
        path = self._codec.path(target)
        if path is not None:
            self._files.unmark(path)
        self._known[target] = False
        return True

    def forget(self, target: Target) -> None:
        """Its cgroup may go, and another come in its place."""
        self._known.pop(target, None)

    def kept_value(self, target: Target) -> Value | None:
        """Of KEPT_FILES: what the file showed before koordlet changed it; None if it has not."""
        path = self._codec.path(target)
        note = None if path is None else self._files.mark_of(path)
        try:
            return None if note is None else self._codec.decode(target, note)
        except FileError:
            # Not a note of ours.
            return None
