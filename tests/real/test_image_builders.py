"""The images are built by Podman and by buildah as well, and the same sources make the same image.

tests/real/test_image.py builds them with Docker. Also: the packages of every image exist for both platforms.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from images.programs import REQUIREMENTS
from tests.real.container_engine import REGISTRY, builder
from tests.real.real_node import REPOSITORY

pytestmark = pytest.mark.slow

_PLATFORMS = ("x86_64-manylinux_2_36", "aarch64-manylinux_2_36")
"""Debian 12 on linux/amd64 and linux/arm64."""


@pytest.mark.parametrize("name", ["podman", "buildah"])
def test_an_image_is_built_and_built_again_the_same(name: str) -> None:
    with builder(name) as engine:
        digests = []
        for options in ((), ("--no-cache",)):
            engine.build("koordlet", options=options)
            listed = json.loads(engine("images", "--json" if name == "buildah" else "--format=json"))
            (digest,) = [each["id" if name == "buildah" else "Id"] for each in listed if _has_our_name(each)]
            digests.append(digest)
        assert digests[0] == digests[1]
        bill = json.loads((engine.bills / "koordlet.cdx.json").read_text())
        assert bill["metadata"]["component"]["name"] == "koordlet"


def _has_our_name(image: dict[str, list[str]]) -> bool:
    names = image.get("names") or image.get("Names") or []
    return any(each.startswith(f"{REGISTRY}/koordlet:") for each in names)


@pytest.mark.parametrize("platform", _PLATFORMS)
@pytest.mark.parametrize("requirements", [*REQUIREMENTS, "image"])
def test_nothing_has_to_be_compiled_for_a_platform(requirements: str, platform: str, tmp_path: Path) -> None:
    """By the hashes of the lock: each requirement has a wheel for the Python of the Dockerfile."""
    command = [
        str(Path(sys.executable).parent / "uv"),
        "pip",
        "install",
        "--dry-run",
        "--require-hashes",
        "--only-binary=:all:",
        "--no-deps",
    ]
    command += [f"--python-platform={platform}", "--python-version=3.13", f"--target={tmp_path}", "--quiet"]
    command += [f"--requirement=requirements/{requirements}.txt"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
