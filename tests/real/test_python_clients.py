"""The Python clients of Kubernetes do on the embedded API what they do on kube-apiserver.

They are installed from PyPI into an environment of their own: both have dependencies that nothing else here needs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.real.kubectl.two_clusters import two_control_planes
from tests.real.programs import RealPrograms

pytestmark = pytest.mark.slow

_PACKAGES: Final = ("kubernetes==37.0.2", "kubernetes_asyncio==36.1.0")
_SCRIPTS: Final = Path(__file__).parent / "python_clients"
_INSTALL_SECONDS: Final = 600
_RUN_SECONDS: Final = 120


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the clients; skips the tests where they cannot be had."""
    folder = tmp_path_factory.mktemp("clients")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    program = folder / "bin/python"
    command = [str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *_PACKAGES]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    if installed.returncode != 0:
        pytest.skip(f"{', '.join(_PACKAGES)} cannot be installed: {installed.stderr.strip()[-300:]}")
    return program


@pytest.fixture(scope="module")
def clusters(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    with two_control_planes(real_programs, tmp_path_factory.mktemp("clusters")) as kubeconfigs:
        yield kubeconfigs


@pytest.mark.parametrize("server", ["real", "embedded"])
@pytest.mark.parametrize(
    ("script", "steps"),
    [
        ("official", ["core", "workloads", "watching", "refusals", "dynamically"]),
        ("asynchronous", ["core", "batch", "watching", "dynamically"]),
    ],
)
def test_its_end_to_end_steps(
    python: Path, clusters: dict[str, Path], script: str, steps: list[str], server: str
) -> None:
    command = [str(python), str(_SCRIPTS / f"{script}.py"), str(clusters[server])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_SECONDS, check=False)
    assert done.stdout.split() == steps, done.stderr[-2000:]
