"""kubectl on the embedded API: every command of a first hour is answered in a way that helps."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from koordinator.api.timestamps import format_time
from tests.cluster.embedded_thread import embedded_server
from tests.real.kubectl.first_hour import FIRST_HOUR
from tests.real.kubectl.runner import Kubectl

pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not on PATH; install a kubectl of version 1.30 or newer"
)
_NEVER = (r"panic:", r"goroutine \d+", r"%!\w\(", r"could not find the requested resource")
"""What no command may print: kubectl's crashes, and a server that seems to be another."""


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with embedded_server(tmp_path_factory.mktemp("embedded")) as kubeconfig:
        yield Kubectl(Path(kubeconfig), tmp_path_factory.mktemp("kubectl-cache"))


@pytest.mark.parametrize("group", FIRST_HOUR)
def test_first_hour(kubectl: Kubectl, group: str) -> None:
    problems = []
    for check in FIRST_HOUR[group]:
        command = check.command.replace("$now", format_time(datetime.now(UTC)))
        problems += kubectl.problems(replace(check, command=command, hides=(*check.hides, *_NEVER)))
    assert not problems, "\n".join(problems)
