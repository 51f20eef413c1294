"""``python -m koordinator.api.manifests [--check] [--chart FOLDER] [DIRECTORY]``: write everything that an installation
consists of below config, and the files of the Helm chart that are made, or say what is out of date there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from koordinator.api.manifests.chart import chart_files
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
    parser.add_argument("--chart", type=Path, default=Path("charts/koordinator"), metavar="FOLDER")
    options = parser.parse_args(arguments)
    wanted = manifest_files(Installation())
    wanted[KUSTOMIZATION] = kustomization(wanted)
    wanted |= manifest_files(Installation(), OPTIONAL_PARTS)
    stale = _stale(options.directory, wanted, options.directory.rglob("*.yaml"))
    of_chart = chart_files(options.chart)
    # Beside the other files are those that are written by hand.
    folders = {path.parent for path in map(Path, of_chart)} - {Path(), Path("templates")}
    stale |= _stale(options.chart, of_chart, (path for name in folders for path in (options.chart / name).glob("*")))
    for path, text in sorted(stale.items()):
        if options.check:
            sys.stderr.write(f"{path} is out of date: run make manifests\n")
        elif text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return 1 if options.check and stale else 0


def _stale(folder: Path, wanted: dict[str, str], found: Iterable[Path]) -> dict[Path, str | None]:
    """The files that differ from what they should be, with their text; None for those that should not be there."""
    surplus: dict[Path, str | None] = {path: None for path in found if str(path.relative_to(folder)) not in wanted}
    paths = {folder / name: text for name, text in wanted.items()}
    return surplus | {path: text for path, text in paths.items() if not path.is_file() or path.read_text() != text}


if __name__ == "__main__":
    sys.exit(main())
