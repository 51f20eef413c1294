"""``python -m release version X | notes X | build | cut --next X``: docs/release.md. Nothing is published.

``version`` writes a version into all places; ``build`` makes the files of a commit in dist/; ``cut`` makes the release
of the version that the checkout has, as two commits and those files.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from release import changelog, version
from release.distributions import build_commit, git
from release.errors import ReleaseError

ROOT: Final = Path(__file__).parents[1]


def render(root: Path) -> None:
    """`make manifests`, by a process that reads the version anew."""
    command = [sys.executable, "-m", "koordinator.api.manifests"]
    subprocess.run(command, cwd=root, env=os.environ | {"PYTHONPATH": str(root / "src")}, check=True)


def write_version(root: Path, wanted: str, rendered: Callable[[Path], None]) -> None:
    """Into all places that spell it."""
    version.write(root, wanted)
    rendered(root)


def cut(root: Path, following: str, today: str, rendered: Callable[[Path], None]) -> str:
    """Commit the release of the version that the checkout has, and after it the start of ``following``.

    Returns the commit of the release. ReleaseError, and nothing has changed, where something is not ready."""
    wanted = version.current(root)
    if git(root, "status", "--porcelain"):
        raise ReleaseError("there are changes that are not committed: git status")
    if version.parsed(following) <= version.parsed(wanted):
        raise ReleaseError(f"{following} does not follow {wanted}")
    text = changelog.released((root / "CHANGELOG.md").read_text(), wanted, today)
    if wrong := [str(path.relative_to(root)) for path, _ in version.stale(root, wanted)]:
        raise ReleaseError(f"not of version {wanted}: {', '.join(wrong)}; python -m release version {wanted}")
    rendered(root)
    if git(root, "status", "--porcelain"):
        raise ReleaseError("config/ or the chart was not current: commit what make manifests has changed")
    (root / "CHANGELOG.md").write_text(text)
    git(root, "commit", "--all", "--quiet", "--message", f"release {wanted}")
    commit = git(root, "rev-parse", "HEAD")
    write_version(root, following, rendered)
    git(root, "commit", "--all", "--quiet", "--message", f"version: {following} begins")
    return commit


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version", help="write a version into all places").add_argument("version")
    commands.add_parser("notes", help="print what CHANGELOG.md says of a release").add_argument("version")
    building = commands.add_parser("build", help="make wheel, sdist, chart and SHA256SUMS of a commit, twice")
    building.add_argument("--commit", default="HEAD")
    cutting = commands.add_parser("cut", help="commit the release, build it, and begin the next version")
    cutting.add_argument("--next", required=True, metavar="X", help="the version whose development begins")
    for each in (building, cutting):
        each.add_argument("--directory", type=Path, default=ROOT / "dist")
    options = parser.parse_args(arguments)
    try:
        match options.command:
            case "version":
                write_version(ROOT, options.version, render)
            case "notes":
                sys.stdout.write(changelog.of_release((ROOT / "CHANGELOG.md").read_text(), options.version))
            case "build":
                _write_files(options.commit, options.directory)
            case "cut":
                wanted = version.current(ROOT)
                commit = cut(ROOT, options.next, f"{datetime.now(UTC):%Y-%m-%d}", render)
                _write_files(commit, options.directory)
                sys.stdout.write(
                    f"Nothing is published yet; docs/release.md says how. git tag --sign v{wanted} {commit}\n"
                )
    except ReleaseError as error:
        sys.stderr.write(f"no release: {error}\n")
        return 1
    return 0


def _write_files(commit: str, directory: Path) -> None:
    sys.stdout.write("".join(f"{path}\n" for path in build_commit(ROOT, commit, directory)))


if __name__ == "__main__":
    sys.exit(main())
