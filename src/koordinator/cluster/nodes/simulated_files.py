"""Writes to the files of a simulated kernel: what the kernel would make of them at once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from koordinator.node.kernel_writer import MachineFiles

_QUOTA_AND_PERIOD: Final = "cpu.max"
_SCHEMATA: Final = "schemata"


class SimulatedFiles(MachineFiles):
    """Who writes a quota alone leaves the period as it was, and who writes one line of schemata the other ones."""

    def write(self, path: str, content: str) -> None:
        words = content.split()
        name = os.path.basename(path)
        if name == _QUOTA_AND_PERIOD and len(words) == 1:
            content = f"{' '.join([*words, *self.read(path).split()[1:]])}\n"
        elif name == _SCHEMATA:
            lines = (line.partition(":") for line in (*self.read(path).splitlines(), *content.splitlines()))
            shown = {kind.strip(): shares for kind, _, shares in lines}
            content = "".join(f"{kind}:{shares}\n" for kind, shares in shown.items())
        super().write(path, content)

    def make_folder(self, path: str) -> None:
        """A group of resctrl begins with what the root group may use, and has no tasks."""
        super().make_folder(path)
        group = Path(path)
        if not (group / _SCHEMATA).exists():
            (group / "tasks").touch()
            (group / _SCHEMATA).write_text((group.parent / _SCHEMATA).read_text())

    def remove_folder(self, path: str) -> None:
        """With its files, which the kernel counts as nothing."""
        if self.exists(path):
            for entry in os.scandir(path):
                shutil.rmtree(entry) if entry.is_dir() else os.unlink(entry)
        super().remove_folder(path)
