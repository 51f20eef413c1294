"""Which pods of the chart and of config/ are not let into a namespace with the restricted Pod Security Standard.

docs/container-images.md has a reason for each exception. tests/real/test_installation.py asks a real API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from koordinator.cluster.admission.pod_security.standards import NEWEST, RESTRICTED, findings
from tests.chart.rendered import NOT_RESTRICTED, configured, pod_specs
from tests.chart.renderings import CASES, Document, recorded
from tests.docs.pages import ROOT

WITH_HOST_NETWORK = "everything"
"""The case whose values give koord-manager the network of its node."""
_ROW = re.compile(r"^\| `([^`]+)` \|([^|]*)\|([^|]*)\|$", re.MULTILINE)


def exceptions(documents: Iterable[Document]) -> dict[str, set[str]]:
    """Pod -> what the standard forbids of what it has; pods with nothing of the kind are left out."""
    found = {name: findings(RESTRICTED, NEWEST, {}, spec) for name, spec in pod_specs(documents)}
    return {name: {each.reason for each in reasons} for name, reasons in found.items() if reasons}


def documented() -> dict[str, set[str]]:
    page = (ROOT / "docs/container-images.md").read_text()
    section = page.split("## Pod Security\n")[1].split("\n## ")[0]
    rows = _ROW.findall(section)
    return {
        name: {row[0] for row in rows if row[column].strip()} for column, name in enumerate(NOT_RESTRICTED, start=1)
    }


def test_only_what_works_on_nodes_has_exceptions_and_each_has_its_reason() -> None:
    assert exceptions(recorded("defaults")) == exceptions(configured()) == documented()


@pytest.mark.parametrize("case", CASES)
def test_no_value_widens_what_a_pod_may_do(case: str) -> None:
    permitted = documented() | ({"koord-manager": {"host namespaces"}} if case == WITH_HOST_NETWORK else {})
    for name, found in exceptions(recorded(case)).items():
        assert found <= permitted.get(name, set())


def test_a_right_that_a_pod_gains_is_noticed() -> None:
    (name, spec), *_ = [each for each in pod_specs(recorded("defaults")) if each[0] == "koord-manager"]
    rights: tuple[Document, ...] = (
        {"hostPID": True},
        {"securityContext": {}},
        {"volumes": [{"name": "x", "hostPath": {"path": "/"}}]},
    )
    for gained in rights:
        assert exceptions([{"kind": "Pod", "metadata": {"name": name}, "spec": spec | gained}])
