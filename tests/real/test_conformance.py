"""Kubernetes' own conformance tests have the same outcome on the embedded API as on kube-apiserver without nodes.

To see what one of them does: build the program by this test once, and start it with the flags of ``suite.py``,
``--ginkgo.v`` and a focus on its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.real.conformance.suite import outcomes, suite
from tests.real.kubectl.two_clusters import two_control_planes
from tests.real.programs import RealPrograms

pytestmark = pytest.mark.slow

_NEED_PODS_OR_NODES: Final = (
    "AdmissionWebhook", "ConversionWebhook", "Aggregator ", "CustomResourceFieldSelectors", "OrderedNamespaceDeletion",
    "all pods are removed", "keep the rc around", "dependents that have both", "orphan pods created by rc",
)  # fmt: skip
_TAKE_LONG: Final = (r"\[Slow\]",)
_API_MACHINERY: Final = r"\[sig-api-machinery\].*\[Conformance\]"
_OTHERS: Final = (
    "CronJob should support CronJob API", "DisruptionController Listing Pod",
    "ReplicationController (should surface a failure|get and update)", "Certificates API",
    "ServiceAccounts should (create a serviceAccountToken|guarantee kube-root|run through|update)", "SubjectReview",
    "API Server should", "EndpointSlice should (create and delete|support creating)",
    "EndpointSliceMirroring should", "Endpoints should",
    "EndpointsController should create and delete", "Ingress API", "IngressClass API", "ServiceCIDR",
    "Services should (complete|delete a collection|find a service)", "ConfigMap should (fail|run)", "Lease",
    "Node Lifecycle", "PodTemplates", "Pods Extended Pods Set QOS", "RuntimeClass should support RuntimeClasses API",
    "Secrets should (fail|patch)", "LimitRange should list", "ConfigMap should be immutable",
    "Secrets should be immutable", "Events", "Kubectl client Kubectl (version|api-versions|cluster-info|diff)",
    "Kubectl client Proxy",
)  # fmt: skip
"""Those of other groups that ask nothing of a kubelet."""
_FEWEST: Final = 40
"""Of each part: fewer are a selection that no longer fits the names."""


@pytest.fixture(scope="module")
def program() -> Path:
    return suite()


@pytest.fixture(scope="module")
def clusters(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    with two_control_planes(real_programs, tmp_path_factory.mktemp("conformance")) as kubeconfigs:
        yield kubeconfigs


@pytest.mark.parametrize(
    "focus",
    [_API_MACHINERY, rf"\[sig-[a-z]+\] ({'|'.join(_OTHERS)}).*\[Conformance\]"],
    ids=["api-machinery", "others"],
)
def test_the_outcomes_are_those_of_the_real_server(
    program: Path, clusters: dict[str, Path], tmp_path: Path, focus: str
) -> None:
    skip = "|".join((*_NEED_PODS_OR_NODES, *_TAKE_LONG))
    with ThreadPoolExecutor(len(clusters)) as threads:
        running = {
            who: threads.submit(outcomes, program, kubeconfig, tmp_path / who, focus, skip)
            for who, kubeconfig in clusters.items()
        }
        found = {who: future.result() for who, future in running.items()}
    passed = [name for name, outcome in found["real"].items() if outcome == "passed"]
    assert len(passed) >= _FEWEST, found["real"]
    assert {name: found["embedded"].get(name, "was not run") for name in passed} == dict.fromkeys(passed, "passed")
