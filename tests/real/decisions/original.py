"""The Go original as a process that says of every pod which nodes it scored how, and why it rejected the others."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms

_SCORES: Final = re.compile(r"scores for Pod: default/(\S+), feasibleNodes: (\d+), plugins:\[([^\]]*)\]")
_DIAGNOSIS: Final = re.compile(r"dump diagnosis for (\S+), targetPod: \S+: \$(\{.*\})")


@dataclass(frozen=True, slots=True)
class Said:
    """What the log has about one pod."""

    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    """Node -> plugin -> weighted score, for all nodes that passed; empty when fewer than two did."""
    failures: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """(plugin, reason) -> nodes, when none passed."""


@contextmanager
def original_scheduler(
    programs: RealPrograms, plane: ControlPlane, configuration: Path, log: Path, *arguments: str
) -> Iterator[None]:
    """Run the original until the end of the block, with more arguments."""
    command = [
        str(programs.original / "koord-scheduler"),
        f"--config={configuration}",
        f"--authentication-kubeconfig={plane.kubeconfig}",
        f"--authorization-kubeconfig={plane.kubeconfig}",
        *("--secure-port=0", "--port=0", "--debug-scores=1000", "--debug-diagnosis", "--debug-diagnosis-blocking"),
        *arguments,
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield
    finally:
        # It does not listen to SIGTERM.
        process.kill()
        process.wait(30)


def read_log(text: str) -> dict[str, Said]:
    """Pod -> what was said of it, the first time that it was tried."""
    found: dict[str, Said] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if (scores := _SCORES.search(line)) is not None:
            found.setdefault(scores[1], Said(scores=_table(lines, int(scores[2]))))
        elif (diagnosis := _DIAGNOSIS.search(line)) is not None:
            name = diagnosis[1].removeprefix("default/")
            found.setdefault(name, Said(failures=_failures(json.loads(diagnosis[2]))))
    return found


def _table(lines: Iterator[str], rows: int) -> dict[str, dict[str, int]]:
    header = _cells(next(lines))
    next(lines)
    table = [dict(zip(header, _cells(next(lines)), strict=True)) for _ in range(rows)]
    plugins = header[4:]
    return {row["Node"]: {plugin: int(row[plugin]) for plugin in plugins} for row in table}


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _failures(document: Any) -> dict[tuple[str, str], list[str]]:
    details = (document.get("scheduleDiagnosis") or {}).get("nodeFailedDetails") or []
    return {(each["failedPlugin"], each["reason"]): sorted(each["failedNodes"]) for each in details}
