"""Helm itself, which is built where the machine has none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.real.go_programs import built, go

_VERSION = "v3.16.4"


def helm_program() -> Path:
    """KOORDINATOR_HELM names one, else that of the PATH, else one is built; skips the test where it cannot be."""
    found = os.environ.get("KOORDINATOR_HELM") or shutil.which("helm")
    return Path(found) if found else built(f"helm-{_VERSION}", ("helm",), _build) / "helm"


def helm_command(program: Path, home: Path) -> str:
    """The start of a command line, for a Helm that keeps its files in ``home``."""
    homes = (f"{name}={home}" for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"))
    return f"{' '.join(homes)} {program}"


def _build(folder: Path) -> None:
    go("install", f"helm.sh/helm/v3/cmd/helm@{_VERSION}", seconds=900, GOBIN=str(folder), GOFLAGS="-mod=mod")
