"""kubectl works the same on the embedded API and on the real kube-apiserver: one list of checks for both."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.kubectl.checks import CHECKS, NAMESPACE, reset
from tests.real.kubectl.runner import Kubectl

pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not on PATH; install a kubectl of version 1.30 or newer"
)


@pytest.fixture(scope="module")
def embedded_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The embedded API as a process of its own."""
    folder = tmp_path_factory.mktemp("embedded")
    kubeconfig = folder / "kubeconfig"
    command = [
        sys.executable,
        "-m",
        "koordinator.cluster",
        f"--data={folder}",
        "--port=0",
        f"--kubeconfig={kubeconfig}",
    ]
    with subprocess.Popen(command) as server:
        try:
            deadline = time.monotonic() + 30
            while not kubeconfig.exists():
                assert server.poll() is None, "the embedded API ended early"
                assert time.monotonic() < deadline, "the embedded API did not start"
                time.sleep(0.05)
            yield kubeconfig
        finally:
            server.terminate()
            server.wait(20)


@pytest.fixture(scope="module", params=["real", "embedded"])
def kubectl(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    if request.param == "real":
        kubeconfig: Path = request.getfixturevalue("real_cluster")
    else:
        kubeconfig = request.getfixturevalue("embedded_kubeconfig")
    kubectl = Kubectl(kubeconfig, tmp_path_factory.mktemp("kubectl-cache"))
    for check in reset():
        assert kubectl.problems(check) == []
    yield kubectl
    kubectl.run("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.mark.parametrize("group", CHECKS)
def test_kubectl(kubectl: Kubectl, group: str) -> None:
    problems = [problem for check in CHECKS[group] for problem in kubectl.problems(check)]
    assert not problems, "\n".join(problems)
