"""Mistakes in configuration on ``koord up``, typed as a person types them: refused or warned of where they are made."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.running import Kubectl, Up, koord_up

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
CONFIGURATION = """\
apiVersion: v1
kind: ConfigMap
metadata: {{name: slo-controller-config, namespace: koordinator-system}}
data: {{{key}: '{text}'}}
"""
QUOTA = """\
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {{name: team, namespace: {namespace}}}
spec: {{min: {{cpu: 40}}, max: {{cpu: 10}}}}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, koordinator.sh/qosClass: ls}}
    spec: {containers: [{name: main, image: nginx}]}
"""


@pytest.fixture(scope="module")
def running_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Up]]:
    with asyncio.Runner() as runner:
        up = koord_up(tmp_path_factory.mktemp("up"), "--only=apiserver,manager")
        yield runner, runner.run(up.__aenter__())
        runner.run(up.__aexit__(None, None, None))


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (CONFIGURATION.format(key="colocation-config", text='{"enable'), "Failed to parse colocation config"),
        (
            CONFIGURATION.format(key="colocation-config", text='{"cpuReclaimThresholdPercnt": 65}'),
            "did you mean cpuReclaimThresholdPercent?",
        ),
        (
            CONFIGURATION.format(key="colocation-config", text='{"degradeTimeMinutes": 0}'),
            "ColocationCfg.ColocationStrategy.DegradeTimeMinutes",
        ),
        (CONFIGURATION.format(key="colocation-confg", text="{}"), "did you mean colocation-config?"),
        (QUOTA.format(namespace="default"), "resourceKey cpu of quota team min 40 > max 10"),
        (QUOTA.format(namespace="kube-system"), "resourceKey cpu of quota team min 40 > max 10"),
        (QUOTA.format(namespace="koordinator-system"), "resourceKey cpu of quota team min 40 > max 10"),
    ],
)
def test_a_mistake_in_configuration_is_refused(
    manifest: str, said: str, running_up: tuple[asyncio.Runner, Up], tmp_path: Path
) -> None:
    runner, up = running_up
    (tmp_path / "f.yaml").write_text(manifest)
    with pytest.raises(AssertionError, match="denied the request") as caught:
        runner.run(Kubectl(up)("apply", "-f", str(tmp_path / "f.yaml")))
    assert said in str(caught.value)


def test_who_applies_a_workload_is_warned(running_up: tuple[asyncio.Runner, Up], tmp_path: Path) -> None:
    runner, up = running_up
    (tmp_path / "f.yaml").write_text(DEPLOYMENT)
    said = runner.run(Kubectl(up)("apply", "-f", str(tmp_path / "f.yaml")))
    assert "Warning: spec.template.metadata.labels[koordinator.sh/qosClass]: 'ls' is no quality of service" in said
    assert "deployment.apps/web created" in said
