"""Runs kubectl with a cache of its own, so that one server's discovery never responds for another's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Check:
    """``command`` is split at spaces. ``fails``: kubectl must end with a status other than zero."""

    command: str
    shows: tuple[str, ...] = ()
    """Patterns (multi-line) that standard output and error together must contain."""
    hides: tuple[str, ...] = ()
    stdin: str = ""
    fails: bool = False


class Kubectl:
    """kubectl against one API server, in a folder where one is named."""

    def __init__(self, kubeconfig: Path, cache: Path, folder: Path | None = None) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise FileNotFoundError("kubectl is not on PATH")
        # The variable, unlike the flag, leaves `kubectl config` what a user sees.
        self._command, self._folder = [program, f"--cache-dir={cache}"], folder
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def run(self, *arguments: str, stdin: str = "", variables: Mapping[str, str] | None = None) -> tuple[int, str]:
        """The exit status, and standard output followed by standard error."""
        done = subprocess.run(
            [*self._command, *arguments], input=stdin, capture_output=True, text=True, timeout=_SECONDS, check=False,
            cwd=self._folder, env={**self._environment, **(variables or {})},
        )  # fmt: skip
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
