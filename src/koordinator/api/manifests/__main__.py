"""``python -m koordinator.api.manifests [--check] [DIRECTORY]``: write everything that an installation consists of
below config, or say what is out of date there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from koordinator.api.manifests.installation import (
    KUSTOMIZATION,
    OPTIONAL_PARTS,
    Installation,
    kustomization,
    manifest_files,
)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 1 when ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m koordinator.api.manifests", description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path("config"))
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a file is out of date")
    options = parser.parse_args(arguments)
    wanted = manifest_files(Installation())
    wanted[KUSTOMIZATION] = kustomization(wanted)
    wanted |= manifest_files(Installation(), OPTIONAL_PARTS)
    if options.check:
        return _check(options.directory, wanted)
    for name in _surplus(options.directory, wanted):
        (options.directory / name).unlink()
    for name, text in wanted.items():
        path = options.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


def _check(directory: Path, wanted: dict[str, str]) -> int:
    stale = _surplus(directory, wanted)
    for name, text in wanted.items():
        path = directory / name
        if not path.is_file() or path.read_text() != text:
            stale.append(name)
    for name in sorted(stale):
        sys.stderr.write(f"{directory / name} is out of date: run make manifests\n")
    return 1 if stale else 0


def _surplus(directory: Path, wanted: dict[str, str]) -> list[str]:
    found = (str(path.relative_to(directory)) for path in directory.rglob("*.yaml"))
    return [name for name in found if name not in wanted]


if __name__ == "__main__":
    sys.exit(main())
