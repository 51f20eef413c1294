"""The real kube-controller-manager, with some of its controllers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def controller_manager(program: Path, kubeconfig: Path, log: Path, names: Sequence[str]) -> Iterator[None]:
    """It runs around the block. ``names`` are those of ``--controllers``."""
    command = [str(program), f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]
    arguments = ["--use-service-account-credentials=false", f"--controllers={','.join(names)}"]
    with log.open("wb") as output, subprocess.Popen([*command, *arguments], stderr=output) as running:
        try:
            yield
        finally:
            running.terminate()
            running.wait(20)
