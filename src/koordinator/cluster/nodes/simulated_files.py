"""Writes to the files of a simulated kernel: what the kernel would make of them at once."""

from __future__ import annotations

from typing import Final

from koordinator.node.kernel_writer import MachineFiles

_QUOTA_AND_PERIOD: Final = "cpu.max"


class SimulatedFiles(MachineFiles):
    """Who writes a quota alone leaves the period as it was."""

    def write(self, path: str, content: str) -> None:
        words = content.split()
        if path.endswith(f"/{_QUOTA_AND_PERIOD}") and len(words) == 1:
            shown = self.read(path).split()
            content = f"{' '.join([*words, *shown[1:]])}\n"
        super().write(path, content)
