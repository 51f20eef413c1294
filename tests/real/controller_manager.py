"""The real kube-controller-manager and ours, with some of their controllers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def controller_manager(program: Path, kubeconfig: Path, log: Path, names: Sequence[str]) -> Iterator[None]:
    """The real one runs around the block. ``names`` are those of ``--controllers``."""
    options = ["--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false"]
    with _running([str(program), *options], kubeconfig, log, names):
        yield


@contextmanager
def our_controllers(kubeconfig: Path, log: Path, names: Sequence[str]) -> Iterator[None]:
    with _running([sys.executable, "-m", "koordinator.cluster.controllers"], kubeconfig, log, names):
        yield


@contextmanager
def _running(command: Sequence[str], kubeconfig: Path, log: Path, names: Sequence[str]) -> Iterator[None]:
    arguments = [f"--kubeconfig={kubeconfig}", f"--controllers={','.join(names)}"]
    with log.open("wb") as output, subprocess.Popen([*command, *arguments], stderr=output) as running:
        try:
            yield
        finally:
            running.terminate()
            running.wait(20)
