"""Kubernetes' own conformance tests as a program, and what becomes of each of them on a cluster.

The program is built from the sources of Kubernetes, which the Go module proxy has; that takes a quarter of an hour on
two cores. It has those parts of the suite that ask nothing of a kubelet, or little.
"""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Final

from tests.real.go_programs import built, go

_HERE: Final = Path(__file__).parent
_VERSION: Final = "1.35.4"
"""That of go.mod."""
_PROGRAM: Final = "conformance.test"
_BUILD_SECONDS: Final = 3600.0
_FLAGS: Final = (
    "--provider=skeleton",
    # There are none: what is asked of them is left out.
    "--num-nodes=1", "--allowed-not-ready-nodes=-1", "--node-schedulable-timeout=2s",
    "--disable-log-dump", "--ginkgo.no-color", "--ginkgo.timeout=1h",
)  # fmt: skip


def suite() -> Path:
    """The program; skips the test where it cannot be built."""
    return built(f"conformance-{_VERSION}", [_PROGRAM], _build) / _PROGRAM


def _build(folder: Path) -> None:
    program = str(folder / _PROGRAM)
    go("test", "-C", str(_HERE), "-c", "-vet=off", "-trimpath", "-ldflags=-s -w", "-o", program, ".",
       seconds=_BUILD_SECONDS)  # fmt: skip


def outcomes(program: Path, kubeconfig: Path, folder: Path, focus: str, skip: str) -> dict[str, str]:
    """Test -> "passed", or why it failed. ``focus`` and ``skip`` are regular expressions of the tests' names."""
    folder.mkdir()
    selection = (f"--ginkgo.focus={focus}", f"--ginkgo.skip={skip}")
    command = [str(program), *_FLAGS, *selection, f"--kubeconfig={kubeconfig}", f"--report-dir={folder}"]
    with (folder / "output").open("wb") as output:
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    (report,) = folder.glob("junit*.xml")
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return {case.get("name", ""): _outcome(case) for case in cases if case.get("status") != "skipped"}


def _outcome(case: ElementTree.Element) -> str:
    failure = case.find("failure")
    return "passed" if failure is None else failure.get("message") or "failed"
