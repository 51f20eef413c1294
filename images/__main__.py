"""Build images with Docker, Podman or buildah: ``python -m images [NAME…]``, which `make images` and `make image` run.

Each is built from the checkout as it is, dated by its last commit. Its bill of materials is written beside the build.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from images.engines import ENGINES, Build, Engine, EngineError, chosen
from images.programs import IMAGES
from release import version
from release.distributions import git
from release.errors import ReleaseError

ROOT: Final = Path(__file__).parents[1]


def build_of(root: Path, base: str | None, source: str | None, options: Sequence[str]) -> Build:
    """What is built of a checkout. Its revision says where it has changes that no commit has."""
    changed = "-dirty" if git(root, "status", "--porcelain") else ""
    arguments = {
        "VERSION": version.current(root),
        "REVISION": git(root, "rev-parse", "HEAD") + changed,
        "SOURCE_DATE_EPOCH": git(root, "log", "-1", "--format=%ct"),
    }
    if base:
        arguments["BASE"] = base
    if source:
        arguments["SOURCE"] = source
    return Build(root, arguments, tuple(options))


def reference(registry: str, name: str, tag: str) -> str:
    """The whole name of an image; without a registry that of a local one."""
    return f"{registry.rstrip('/')}/{name}:{tag}" if registry else f"{name}:{tag}"


def build_images(engine: Engine, build: Build, names: Iterable[str], registry: str, bills: Path) -> Iterator[str]:
    """Build them one after the other, and write the bill of materials of each. EngineError if one fails."""
    bills.mkdir(parents=True, exist_ok=True)
    for name in names:
        tag = reference(registry, name, build.arguments["VERSION"])
        engine.build(build, name, tag)
        (bills / f"{name}.cdx.json").write_text(engine.read(tag, f"/usr/share/sbom/{name}.cdx.json"))
        yield tag


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m images", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(IMAGES)}")
    parser.add_argument("--engine", choices=tuple(ENGINES), help="default: the first of these that works here")
    parser.add_argument("--registry", default="", help="what the names begin with, such as registry.example/team")
    parser.add_argument("--base", help="the image of Python, with a digest; default: that of the Dockerfile")
    parser.add_argument("--source", help="where the sources are, for the label org.opencontainers.image.source")
    parser.add_argument(
        "--build-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="handed on to the engine, such as --platform=linux/arm64",
    )
    parser.add_argument(
        "--bills", type=Path, default=ROOT / "build/sbom", metavar="DIR", help="where NAME.cdx.json is written"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, and say what was built. The exit status is 1 where no engine works here or a build fails."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in IMAGES]:
        parser.error(f"there is no image {', '.join(unknown)}; there are {', '.join(IMAGES)}")
    try:
        engine = chosen(options.engine)
        build = build_of(ROOT, options.base, options.source, options.build_option)
        for tag in build_images(engine, build, options.names or IMAGES, options.registry, options.bills):
            print(f"{tag}, built with {engine.name}; {options.bills} has what is in it")  # noqa: T201
    except (EngineError, ReleaseError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
