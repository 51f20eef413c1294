"""The version of the project: written by hand in one place, and spelt in others, which follow it.

``src/koordinator/__init__.py`` has it. pyproject.toml, each ``--version``, ``koordinator_build_info`` and User-Agents
have it from there; `make manifests` writes it into config/ and the chart. What is left is prose: names of images, of
wheels and of what a program prints, on pages and in comments. Those are found by how they look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from release.errors import ReleaseError

HOME: Final = Path("src/koordinator/__init__.py")
_ASSIGNED: Final = re.compile(r'(?<=^__version__ = ")[^"]*(?="$)', re.MULTILINE)
_VERSION: Final = r"[0-9]+\.[0-9]+\.[0-9]+"
_SPELT: Final = re.compile(rf"(\bkoord[a-z-]*[:/ -]|\{{program\}}:|\bprocess [0-9]+, version ){_VERSION}\b")
"""Of images, a wheel, a chart or a program, ours alone: those of the original have a v before theirs."""
_FILES: Final = ("Dockerfile", "*.md", "docs/*.md", "src/**/*.py")
_HISTORY: Final = frozenset({"CHANGELOG.md"})


def current(root: Path) -> str:
    """The version of the checkout at ``root``."""
    found = _ASSIGNED.search((root / HOME).read_text())
    if found is None:
        raise ReleaseError(f"{HOME} has no line __version__ = …")
    return found[0]


def parsed(version: str) -> tuple[int, ...]:
    """Its three numbers, which order versions."""
    if not re.fullmatch(_VERSION, version):
        raise ReleaseError(f"{version!r} is no version: three numbers such as 1.2.3 are needed, as for a Helm chart")
    return tuple(map(int, version.split(".")))


def with_version(text: str, version: str) -> str:
    """``text`` with this version wherever it names one of ours."""
    return _SPELT.sub(rf"\g<1>{version}", text)


def stale(root: Path, version: str) -> Iterator[tuple[Path, str]]:
    """The files below ``root`` that spell another version, and their text with this one."""
    files = chain.from_iterable(root.glob(pattern) for pattern in _FILES)
    for path in sorted(path for path in files if path.name not in _HISTORY):
        text = path.read_text()
        if (wanted := with_version(text, version)) != text:
            yield path, wanted


def write(root: Path, version: str) -> list[Path]:
    """Make ``version`` that of the checkout; returns the files that have changed. `make manifests` does the rest."""
    parsed(version)
    changed = [] if current(root) == version else [root / HOME]
    (root / HOME).write_text(_ASSIGNED.sub(version, (root / HOME).read_text()))
    for path, text in stale(root, version):
        path.write_text(text)
        changed.append(path)
    return changed
