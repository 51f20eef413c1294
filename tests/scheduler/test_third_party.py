"""The example of docs/plugins.md: installed as a package, named in a profile, and its result decides."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.api.codec import to_document
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import parse_configuration
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain import explain_pod
from koordinator.scheduler.main import main
from koordinator.scheduler.plugins.table import BUILT_IN
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

EXAMPLE = Path(__file__).parents[2] / "docs/examples/plugin-package"
MODULES = ("tenant_nodes", "vectorised_tenant_nodes")
PLUGINS = ("TenantNodes", "VectorisedTenantNodes")
TENANT = "example.com/tenant"
PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: koord-scheduler
    plugins:
      multiPoint:
        enabled: [{{name: PrioritySort}}, {{name: NodeResourcesFit}}, {{name: DefaultBinder}}, {{name: {plugin}}}]
        disabled: [{{name: "*"}}]
    pluginConfig: [{{name: {plugin}, args: {{nodeLabel: {label}}}}}]
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example is installed, as its users would do it but without a network."""
    target = tmp_path_factory.mktemp("packages")
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check", "--quiet")
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", target, EXAMPLE], check=True)
    return target


@pytest.fixture
def installed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(packages)
    yield
    for module in MODULES:
        sys.modules.pop(module, None)


def three_nodes() -> SchedulerApi:
    """One of tenant ``default``, a large one of ``other``, one of nobody."""
    api = SchedulerApi()
    api.store(make_node("of-default", labels={TENANT: "default"}, cpu="2"))
    api.store(make_node("of-other", labels={TENANT: "other"}, cpu="64"))
    api.store(make_node("of-nobody", cpu="2"))
    return api


def profile_of(plugin: str, view: ClusterView, label: str = TENANT) -> Profile:
    configuration = parse_configuration(PROFILE.format(plugin=plugin, label=label), "test")
    return build_profiles(configuration, BUILT_IN, view)[0]


async def big_pod(fixture: RunningScheduler) -> None:
    fixture.api.store(make_pod("big", cpu="8"))
    await fixture.until_idle()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("plugin", PLUGINS)
def test_its_score_and_its_filter_decide(plugin: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        for name in ("first", "second", "third"):
            fixture.api.store(make_pod(name, cpu="2"))
            await fixture.until_idle()

    fixture = simulate(story, three_nodes, partial(profile_of, plugin))
    assert fixture.api.placed() == {"first": "of-default", "second": "of-nobody"}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("plugin", PLUGINS)
def test_its_reason_is_reported_and_explained(plugin: str) -> None:
    explanations: list[dict[str, Any] | None] = []

    async def story(fixture: RunningScheduler) -> None:
        await big_pod(fixture)
        explanations.append(to_document(explain_pod(fixture.scheduler.sources, "default", "big")))

    fixture = simulate(story, three_nodes, partial(profile_of, plugin))
    ((_, _, message),) = fixture.api.conditions
    assert message.startswith("0/3 nodes are available: 1 node(s) belonged to another tenant, 2 Insufficient cpu.")
    (explanation,) = explanations
    assert explanation is not None
    (rejected,) = [each for each in explanation["attempts"][0]["rejected"] if each["plugin"] == plugin]
    assert rejected["reasons"] == ["node(s) belonged to another tenant"]
    assert rejected["examples"] == ["of-other"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("plugin", PLUGINS)
def test_its_arguments_arrive(plugin: str) -> None:
    fixture = simulate(big_pod, three_nodes, partial(profile_of, plugin, label="example.com/owner"))
    assert fixture.api.placed() == {"big": "of-other"}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_change_that_it_waits_for_frees_a_pod(plugin: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        await big_pod(fixture)
        fixture.api.store(make_node("of-other", cpu="64"))
        await fixture.until_idle(2)

    fixture = simulate(story, three_nodes, partial(profile_of, plugin))
    assert fixture.api.placed() == {"big": "of-other"}


def test_the_program_finds_it(packages: Path) -> None:
    command = [sys.executable, "-m", "koordinator.scheduler", f"--config={EXAMPLE / 'scheduler.yaml'}"]
    written = subprocess.run(
        [*command, "--write-config-to=/dev/stdout"],
        env={**os.environ, "PYTHONPATH": str(packages)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    (profile,) = yaml.safe_load(written)["profiles"]
    assert {"name": "TenantNodes"} in profile["plugins"]["filter"]["enabled"]
    assert {"name": "TenantNodes", "weight": 5} in profile["plugins"]["score"]["enabled"]
    assert {"name": "TenantNodes", "args": {"nodeLabel": TENANT}} in profile["pluginConfig"]


def test_without_the_package_the_profile_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--config={EXAMPLE / 'scheduler.yaml'}"]) == 1
    assert "enabled[0].name: 'TenantNodes' is not usable: no such plugin; there are" in capsys.readouterr().err


def test_the_documentation_shows_the_tested_example() -> None:
    shown = (EXAMPLE.parents[1] / "plugins.md").read_text()
    example = (EXAMPLE / "tenant_nodes.py").read_text()
    assert f"```python\n{example}```" in shown
    assert len(example.splitlines()) <= 30
