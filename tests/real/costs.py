"""What each file of a run costs: seconds that pass, and seconds of CPU of the test process and of what it has started.

A program counts once it has ended and its parent has waited for it; what tests of several files share counts for the
last one of a worker.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import pytest

_NAME: Final = "cpu_seconds"
_MOST_LINES: Final = 40


class Costs:
    """A plugin of pytest: every worker measures, and whoever prints the summary adds up."""

    def __init__(self) -> None:
        self._used = _cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Any:
        report = yield
        if call.when == "teardown":
            before, self._used = self._used, _cpu_seconds()
            report.user_properties.append((_NAME, self._used - before))
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        reports = [each for found in terminalreporter.stats.values() for each in found]
        lines = table(each for each in reports if isinstance(each, pytest.TestReport))
        if not reports:
            return
        terminalreporter.section("seconds, and of them seconds of CPU")
        for line in lines:
            terminalreporter.write_line(line)


def table(reports: Iterable[pytest.TestReport]) -> list[str]:
    """The most expensive files first, and the sum of all."""
    passed: dict[str, float] = defaultdict(float)
    used: dict[str, float] = defaultdict(float)
    for report in reports:
        file = report.nodeid.partition("::")[0]
        passed[file] += report.duration
        if report.when == "teardown":
            used[file] += sum(float(str(value)) for name, value in report.user_properties if name == _NAME)
    order = sorted(passed, key=lambda file: -passed[file])
    lines = [f"{passed[file]:8.1f} {used[file]:8.1f}  {file}" for file in order[:_MOST_LINES]]
    return [*lines, f"{sum(passed.values()):8.1f} {sum(used.values()):8.1f}  all {len(order)} files"]


def _cpu_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
