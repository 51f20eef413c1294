"""critest passes the same cases directly, through the proxy, and with a hook server that implements all seven hooks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.container_runtime import ProxiedRuntime
from tests.real.critest import all_hooks, critest, critest_node
from tests.real.programs import RealPrograms

_QUICK = "Image Manager|Streaming|Networking|basic operations on (container|PodSandbox)|Multiple Containers|NoNewPrivs"
_FAILS_AFTER_A_MINUTE = "port mapping with host port"
"""With and without the proxy: the machine's own address does not lead to containers here."""
_FOCUSES = [
    pytest.param(_QUICK, _FAILS_AFTER_A_MINUTE, 30, id="quick"),
    pytest.param("", "", 85, id="all", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def node(real_programs: RealPrograms) -> Iterator[ProxiedRuntime]:
    if shutil.which("gcc") is None:
        pytest.skip("apt-get install gcc libc6-dev: critest wants an image with a program that runs as root")
    with critest_node(real_programs) as started:
        yield started


@pytest.mark.parametrize(("focus", "skip", "least"), _FOCUSES)
def test_what_passes_directly_passes_with_and_without_hooks(
    node: ProxiedRuntime, focus: str, skip: str, least: int
) -> None:
    direct, through = (_passed(node, socket, focus, skip) for socket in (node.runtime.socket, node.proxy.socket))
    with all_hooks(node) as log:
        hooked = _passed(node, node.proxy.socket, focus, skip)
        requested = log.read_text()
    assert len(direct) >= least
    assert (direct - through, direct - hooked) == (set(), set())
    assert requested.count("ContainerResourceHookRequest") >= least
    assert requested.count("PodSandboxHookRequest") >= least


def _passed(node: ProxiedRuntime, socket: Path, focus: str, skip: str) -> set[str]:
    return {name for name, status in critest(node.programs, socket, focus, skip).items() if status == "passed"}
