"""The bill of materials of an image (CycloneDX): each distribution with licence, purl and the hash of its wheel.

cyclonedx-py lists what is installed in an environment. Added here is what it cannot know: the wheels' hashes, the parts
that distributions say they were compiled from (PEP 770), the interpreter, and Debian's packages.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from images.environment import ENVIRONMENT, canonical, site_packages

Component = dict[str, Any]

_VERSION: Final = "1.6"
_SHORT_LICENCE: Final = re.compile(r"^License: +(\S.*)$", re.MULTILINE)
_MACHINE_READABLE: Final = "Format: http"


def components_of_environment(hashes: Mapping[str, str]) -> dict[str, Any]:
    """The bill of materials of what is installed in the environment, with the hashes of the wheels."""
    command = [str(Path(sys.executable).parent / "cyclonedx-py"), "environment", "--output-reproducible"]
    # Where metadata names no licence that SPDX knows, its text is what there is.
    command += ["--gather-license-texts", f"--spec-version={_VERSION}", str(ENVIRONMENT / "bin/python")]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    document: dict[str, Any] = json.loads(printed)
    for component in document["components"]:
        name = canonical(component["name"])
        component["hashes"] = [{"alg": "SHA-256", "content": hashes[name]}]
        # Of our own wheel, which is on no index, they name the folder in which it was built.
        component.pop("externalReferences", None)
        component.setdefault("purl", f"pkg:generic/{name}@{component['version']}")
        if parts := _parts(component):
            component["components"] = parts
    return document


def _parts(component: Component) -> list[Component]:
    """What a distribution says that it was compiled from, such as crates of Rust."""
    folder = f"{canonical(component['name']).replace('-', '_')}-{component['version']}.dist-info/sboms"
    found: dict[str, Component] = {}
    for file in sorted((site_packages() / folder).glob("*.json")):
        for part in json.loads(file.read_text()).get("components", ()):
            reference = f"{component['name']}:{part.get('purl', part['name'])}"
            kept = {key: part[key] for key in ("type", "name", "version", "purl", "licenses", "hashes") if key in part}
            found[reference] = {**kept, "bom-ref": reference}
    return list(found.values())


def interpreter() -> Component:
    """The Python that the base has built itself; Debian's own is among Debian's packages."""
    version = platform.python_version()
    return {
        "type": "application",
        "bom-ref": "cpython",
        "name": "cpython",
        "version": version,
        "purl": f"pkg:generic/cpython@{version}",
        "licenses": [{"license": {"id": "PSF-2.0"}}],
    }


def debian_packages(names: Iterable[str]) -> list[Component]:
    """Those of the base whose files are in the image."""
    return [_debian_package(name) for name in sorted({*names, "ca-certificates", "tzdata"})]


def _debian_package(name: str) -> Component:
    form = "--showformat=${Version} ${Architecture}"
    shown = subprocess.run(["dpkg-query", "--show", form, name], capture_output=True, text=True, check=True).stdout
    version, architecture = shown.split()[:2]
    purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={architecture}"
    copyright_file = Path("/usr/share/doc", name, "copyright")
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [{"license": {"name": each}} for each in licences(copyright_file)],
    }


def licences(copyright_file: Path) -> list[str]:
    """The names of the licences in Debian's file of a package, where it has them in a form that can be read."""
    text = copyright_file.read_text(errors="replace")
    short = sorted(set(_SHORT_LICENCE.findall(text))) if text.startswith(_MACHINE_READABLE) else []
    return short or [f"see {copyright_file}"]


def for_program(document: Mapping[str, Any], program: str, version: str, others: Iterable[Component]) -> str:
    """The text of the bill of materials of one image. ``others`` are components that no Python distribution has."""
    name = {"type": "container", "bom-ref": program, "name": program, "version": version}
    components = [*document["components"], *others]
    references = sorted(each["bom-ref"] for each in components)
    depends = [each for each in document["dependencies"] if each["ref"] in references]
    made = {
        **document,
        "metadata": {**document["metadata"], "component": name},
        "components": components,
        "dependencies": [*depends, {"ref": program, "dependsOn": references}],
    }
    return json.dumps(made, indent=1, sort_keys=True) + "\n"
