"""`pip install koordinator && koord up` with nothing but what pip brings from the index of packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from release.distributions import build
from tests.release.test_wheel import EPOCH, REPOSITORY, only, runs_as_documented

pytestmark = pytest.mark.slow


def test_what_pip_installs_runs_a_cluster_and_the_demonstration(tmp_path: Path) -> None:
    build(REPOSITORY, tmp_path / "dist", EPOCH)
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    wheel = str(only(tmp_path / "dist", "*.whl"))
    install = [str(environment / "bin/pip"), "install", "--quiet", "--only-binary=:all:", wheel]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("KOORDINATOR_REAL_REQUIRED"):
        pytest.skip(f"no index of packages is reachable: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    runs_as_documented(environment, tmp_path)
