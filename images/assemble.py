"""Assemble the files of all images in the stage of the Dockerfile that builds: ``python -m images.assemble WHEEL``.

Below /images are written: ``system``, which all images share; a folder for each file of requirements, which those
images share that have it; and a folder for each program.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from images.bill_of_materials import components_of_environment, debian_packages, for_program, interpreter
from images.environment import create, keep_of_package, set_times, site_packages, split
from images.programs import IMAGES, REQUIREMENTS, commands_of
from images.system_files import write_system

_FOLDER: Final = Path("/images")
_BILLS: Final = "usr/share/sbom"


def main() -> None:
    (wheel,) = map(Path, sys.argv[1:])
    extensions: set[Path] = set()
    bills: dict[str, dict[str, Any]] = {}
    for requirements in REQUIREMENTS:
        hashes = create(Path(f"requirements/{requirements}.txt"), wheel)
        bills[requirements] = components_of_environment(hashes)
        whole = _FOLDER / "package" / requirements
        split(_FOLDER / requirements, whole)
        extensions.update((_FOLDER / requirements).rglob("*.so*"))
        for name, image in IMAGES.items():
            if image.requirements == requirements:
                _program(name, whole)
    shutil.rmtree(_FOLDER / "package")
    packages = write_system(_FOLDER / "system", extensions)
    others = debian_packages(packages)
    if not any(each["name"].startswith("python3") for each in others):
        others.append(interpreter())
    version = wheel.name.split("-")[1]
    for name, image in IMAGES.items():
        bill = _FOLDER / name / _BILLS / f"{name}.cdx.json"
        bill.parent.mkdir(parents=True)
        bill.write_text(for_program(bills[image.requirements], name, version, others))
    set_times(_FOLDER, int(os.environ.get("SOURCE_DATE_EPOCH") or 0))


def _program(name: str, whole: Path) -> None:
    """Its part of the package, its commands, and links to them where the original's manifests start them."""
    root = _FOLDER / name
    shutil.copytree(whole, root, symlinks=True)
    commands = commands_of(name)
    scripts = root / "opt/koordinator/bin"
    for script in list(scripts.iterdir()):
        if script.name not in commands:
            script.unlink()
    for command in commands:
        (root / command).symlink_to(f"/opt/koordinator/bin/{command}")
    packages = IMAGES[name].packages
    site = root / site_packages().relative_to("/")
    if packages is not None:
        keep_of_package(site, packages)


if __name__ == "__main__":
    main()
