"""Where the real programs are: a folder that the environment names, or one that the shared tools unpack."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
HOW_TO_GET = (
    "the real programs are absent: download the Kubernetes v1.35 server binaries and etcd into DIR/kubernetes, put the "
    "Go original's programs into DIR/original, and set KOORDINATOR_REAL_BIN=DIR"
)


@dataclass(frozen=True, slots=True)
class RealPrograms:
    """Folders of executables."""

    kubernetes: Path
    original: Path


def find_real_programs() -> RealPrograms | None:
    """The programs, or None when they are not on this machine (HOW_TO_GET says what to do)."""
    root = _folder()
    if root is None or not (root / "kubernetes/kube-apiserver").is_file():
        return None
    return RealPrograms(kubernetes=root / "kubernetes", original=root / "original")


def _folder() -> Path | None:
    named = os.environ.get("KOORDINATOR_REAL_BIN")
    if named:
        return Path(named)
    shared = Path(os.environ.get("KOORDINATOR_SHARED") or _REPOSITORY.parent / "shared")
    unpack = shared / "tools/unpack.sh"
    if not unpack.is_file():
        return None
    unpacked = subprocess.run([str(unpack)], check=True, capture_output=True, text=True)
    return Path(unpacked.stdout.strip())
