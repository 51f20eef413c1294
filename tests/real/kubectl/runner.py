"""Runs kubectl with a cache of its own, so that one server's discovery never responses for another's."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.real.kubectl.checks import Check


class Kubectl:
    """kubectl against one API server."""

    def __init__(self, kubeconfig: Path, cache: Path) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise FileNotFoundError("kubectl is not on PATH")
        self._command = [program, f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}"]

    def run(self, *arguments: str, stdin: str = "") -> tuple[int, str]:
        """The exit status, and standard output followed by standard error."""
        done = subprocess.run(
            [*self._command, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def problems(self, check: Check) -> list[str]:
        """What is wrong with what kubectl did and printed; empty when the check holds."""
        status, output = self.run(*check.command.split(" "), stdin=check.stdin)
        problems = []
        if (status != 0) != check.fails:
            problems.append(f"ended with status {status}")
        problems += [f"does not show {p!r}" for p in check.shows if not re.search(p, output, re.MULTILINE)]
        problems += [f"shows {p!r}" for p in check.hides if re.search(p, output, re.MULTILINE)]
        return [f"kubectl {check.command}: {problem}; it printed:\n{output}" for problem in problems]
