"""The ``koord`` command as a user runs it: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.real.control_plane import ControlPlane

_SECONDS: Final = 120.0


def run_koord(*arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What the command printed, and its status, whatever that is. ``kubeconfig`` is that of the environment."""
    command = (sys.executable, "-m", "koordinator.cli.main", *arguments)
    # On a terminal on which no cell of a table is broken.
    environment = {**os.environ, "COLUMNS": "1000"}
    environment |= {"KUBECONFIG": str(kubeconfig)} if kubeconfig is not None else {}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)


def on_one_line(output: str) -> str:
    """Without the line breaks that the width of a terminal puts into sentences."""
    return " ".join(output.split())


def explained_node(plane: ControlPlane, name: str, *, scheduler: int, manager: int) -> str:
    """What ``koord explain node`` says of a node, with the programs at these ports."""
    where = (f"--scheduler=http://127.0.0.1:{scheduler}", f"--manager=http://127.0.0.1:{manager}")
    done = run_koord("explain", "node", name, f"--kubeconfig={plane.kubeconfig}", *where)
    assert done.returncode == 0, done.stderr
    return on_one_line(done.stdout)
