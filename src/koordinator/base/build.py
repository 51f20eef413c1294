"""Build information: the version, the git commit if it is known, and the Python version."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from koordinator import __version__

_DISTRIBUTION: Final = "koordinator"
_GIT_SECONDS: Final = 2.0


def version_line(program: str, version: str = __version__) -> str:
    """``koord 0.2.0 (commit 1a2b3c4d5e6f, Python 3.11.7)``."""
    known = commit()
    details = f"commit {known}, " if known else ""
    return f"{program} {version} ({details}Python {platform.python_version()})"


class VersionAction(argparse.Action):
    """``--version`` for programs that use argparse; the version is determined only when the flag is given."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help="show the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(version_line(parser.prog.removeprefix("python -m ")))  # noqa: T201  the program's output
        parser.exit()


def commit() -> str:
    """Return the first twelve digits of the git commit: that of the checkout that this runs from, or that of the
    repository that the package was installed from.

    Empty if the commit is unknown.
    """
    source = Path(__file__).parents[3]
    # Only koordinator's own checkout counts, not any repository that an installed package happens to lie in.
    if (source / ".git").exists() and (source / "pyproject.toml").exists():
        return _head(source)
    return _installed_commit()


def _head(checkout: Path) -> str:
    # Imported here, because --version would take a third longer with a module-level import.
    import subprocess

    try:
        found = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()


def _installed_commit() -> str:
    """Return the commit that the installer recorded in direct_url.json (PEP 610)."""
    # Imported here, because --version would take twice as long with a module-level import.
    import json
    from importlib import metadata

    try:
        text = metadata.distribution(_DISTRIBUTION).read_text("direct_url.json")
        return str(json.loads(text or "{}").get("vcs_info", {}).get("commit_id", ""))[:12]
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return ""
