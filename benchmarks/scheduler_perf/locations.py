"""Where Kubernetes' own workload files are on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VERSION: Final = "v1.35.0"
HOW_TO_GET: Final = (
    f"Kubernetes' scheduler_perf files are not on this machine; get them with\n"
    f"  GOFLAGS=-mod=mod go mod download k8s.io/kubernetes@{VERSION}\n"
    f"or name a folder that has them with --config"
)
_FOLDER: Final = f"k8s.io/kubernetes@{VERSION}/test/integration/scheduler_perf"


def scheduler_perf_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of the files in Go's module cache, or None when they are not there."""
    folder = _module_cache(environment) / _FOLDER
    return folder if folder.is_dir() else None


def _module_cache(environment: Mapping[str, str]) -> Path:
    """As Go finds it; Go itself is queried where it is installed."""
    if environment.get("GOMODCACHE"):
        return Path(environment["GOMODCACHE"])
    if environment.get("GOPATH"):
        return Path(environment["GOPATH"].split(os.pathsep)[0]) / "pkg/mod"
    program = shutil.which("go", path=environment.get("PATH", ""))
    if program is not None:
        response = subprocess.run([program, "env", "GOMODCACHE"], capture_output=True, text=True, check=False)
        if response.returncode == 0 and response.stdout.strip():
            return Path(response.stdout.strip())
    return Path(environment.get("HOME", "/")) / "go/pkg/mod"
