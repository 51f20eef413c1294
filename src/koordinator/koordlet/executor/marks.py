"""Which of the files that the kubelet writes, too, were changed by koordlet: by this process or by an earlier one."""

from __future__ import annotations

from collections.abc import Collection

from koordinator.koordlet.executor.wishes import Priority, Wish
from koordinator.node.kernel_file_codec import KernelFileCodec
from koordinator.node.kernel_files import KUBELET_FILES, Target
from koordinator.node.kernel_writer import KernelFiles


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
            known = self._known[target] = path is not None and self._files.is_marked(path)
        return known

    def add(self, target: Target) -> None:
        """Before the file is changed. MissingFileError if it is gone."""
        path = self._codec.path(target)
        if path is not None and not self.has(target):
            self._files.mark(path)
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
