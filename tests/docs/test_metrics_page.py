"""docs/metrics.md and docs/access.md say what the running programs have."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from koordinator.base.metrics import Metrics
from koordinator.kube.serving import HealthServer
from koordinator.manager.recommender.debug_page import PATH as RECOMMENDATION_PAGE
from tests.docs.access_page import documented
from tests.docs.generated_pages import ROOT, stale_lines
from tests.docs.metrics_page import PAGE
from tests.koordlet.node_under_test import NodeUnderTest
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def running() -> Any:
    """What the programs have. They run in a process of their own, since they set up its logging and its signals."""
    program = [sys.executable, "-m", "tests.docs.metrics_page", "--print"]
    written = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert written.returncode == 0, written.stderr
    return json.loads(written.stdout)


def test_the_page_is_as_the_programs_are(running: Any) -> None:
    lines = stale_lines({PAGE: running["page"]})
    assert not lines, "python -m tests.docs.metrics_page writes it anew:\n" + "\n".join(lines)


def test_the_table_of_who_may_see_what_has_every_path_that_is_served_and_no_other(running: Any, tmp_path: Path) -> None:
    served: dict[str, list[str]] = {**running["routes"], "koordlet": routes_of_koordlet(tmp_path)}
    # With the gate Recommender.
    served["koord-manager"].append(RECOMMENDATION_PAGE)
    for program, paths in documented().items():
        unknown = [route for route in served[program] if not any(path.means(route) for path in paths)]
        gone = [path.text for path in paths if not any(path.means(route) for route in served[program])]
        assert (program, unknown, gone) == (program, [], [])


def routes_of_koordlet(folder: Path) -> list[str]:
    node = NodeUnderTest(folder)
    node.gates = ("AuditEvents", "AuditEventsHTTPHandler")
    server = HealthServer(Metrics())
    node._agent()._add_routes(server)
    return [*server._routes._fixed, *server._routes._with_parameters]
