"""Tests against real programs: where those are found, and a control plane that all tests of a session share."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.real.control_plane import GARBAGE_PERCENT, ControlPlane
from tests.real.costs import Costs
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs

_HERE = Path(__file__).resolve().parent


_REAL_NODE = "real node"
_ON_THE_REAL_NODE = (
    "cgroups", "cpu_suppress", "critest", "image", "interference", "koordlet", "koordlet_extensions", "koordlet_roles",
    "kubelet_quotas", "nri", "runtime_hooks", "runtime_proxy_kubelet", "upgrade_node",
)  # fmt: skip
"""A machine has one: these wait for each other, and one worker at most shall. A kubelet ends the processes of pods
that it does not know, such as that of test_cgroups."""
_VIRTUAL_MACHINE = "virtual machine"
_IN_A_VIRTUAL_MACHINE = (
    "block_io_weights", "core_scheduling", "cpu_suppress_cgroup1", "cpu_suppress_cgroup2", "kubelet_managers",
    "systemd_cgroups",
)  # fmt: skip
"""One takes all CPUs of the machine that emulates it: one worker at most runs any."""
_LONG = (
    "cpu_suppress_cpusets", "gangs", "generated_clusters", "generated_fixtures", "koordlet_cpu_evictions",
    "koordlet_evictions", "koordlet_steps", "manager_controllers", "migration", "quotas", "reservations", "upgrade",
)  # fmt: skip
"""Minutes each, or many parts."""
_LINES_OF_A_FAILURE = 40
_PART = re.compile(r"\bpart \d+")


def pytest_configure(config: pytest.Config) -> None:
    # Memory is at hand and CPUs are not: this saves a quarter of a control plane's CPU.
    os.environ.setdefault(GARBAGE_PERCENT, "400")
    config.pluginmanager.register(Costs())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest is begun with."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.real)
    items.sort(
        key=lambda item: item.path.stem.removeprefix("test_") not in _ON_THE_REAL_NODE + _IN_A_VIRTUAL_MACHINE + _LONG
    )


_MADE_AGAIN: set[pytest.FixtureDef[Any]] = set()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Function) -> None:
    """What the tests of a file share is made once more for the first of them that is run again.

    It is a recording of two programs, or a cluster on which they ran, and would fail the test again.
    """
    if getattr(item, "execution_count", 1) == 1:
        return
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        for fixture in definitions:
            is_shared = fixture.scope == "module" and fixture.func.__module__ == item.module.__name__
            if is_shared and fixture not in _MADE_AGAIN:
                _MADE_AGAIN.add(fixture)
                # It wants the request of a fixture, and uses what that of a test has, too.
                fixture.finish(item._request)  # type: ignore[arg-type]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why a test had to be run again: that it passed then explains nothing."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"failed at first: {report.nodeid}")
        terminalreporter.write_line("\n".join(report.longreprtext.splitlines()[-_LINES_OF_A_FAILURE:]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    config.option.loadscopereorder = False
    return _Scheduling(config, log)


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """One worker runs the tests of a file, since they share fixtures; or the tests of a part of it, where their names
    say "part 0"."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        subject = Path(file).stem.removeprefix("test_")
        if subject in _ON_THE_REAL_NODE:
            return _REAL_NODE
        if subject in _IN_A_VIRTUAL_MACHINE:
            return _VIRTUAL_MACHINE
        part = _PART.search(test)
        return f"{file} {part[0]}" if part else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        """A worker always has a test more than it runs. While that is the only one of its file or part, which may take
        minutes, what comes next waits for it: not what is to be begun early, but what is to be begun last."""
        left = [unit for unit in self.assigned_work[node].values() if not all(unit.values())]
        if left and not any(any(unit.values()) for unit in left):
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


@pytest.fixture(scope="session", autouse=True)
def real_programs() -> RealPrograms:
    """The programs, or a skip of every test below this folder with the way to get them.

    Where KOORDINATOR_REAL_REQUIRED is set, as in CI, the run fails instead.
    """
    programs = find_real_programs()
    if programs is None:
        if os.environ.get("KOORDINATOR_REAL_REQUIRED"):
            pytest.exit(HOW_TO_GET, returncode=1)
        pytest.skip(HOW_TO_GET)
    return programs


@pytest.fixture(scope="session")
def real_control_plane(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running control plane that tests share: they leave it running, and break only ones of their own."""
    with ControlPlane(real_programs.kubernetes, tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def real_cluster(real_control_plane: ControlPlane) -> Path:
    """The kubeconfig of a running real API server."""
    return real_control_plane.kubeconfig


@pytest.fixture
def empty(real_programs: RealPrograms, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of the test's own, without any object, which grants what roles say."""
    with ControlPlane(real_programs.kubernetes, tmp_path / "cluster", authorization_mode="RBAC") as cluster:
        yield cluster


@pytest.fixture
def plane(real_programs: RealPrograms, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of the test's own: to be broken, or since its nodes and volumes are all that there may be."""
    with ControlPlane(real_programs.kubernetes, tmp_path / "cluster") as cluster:
        yield cluster
