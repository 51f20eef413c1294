"""Parts of NodeSLOs that other packages bring: the example of docs/manager.md, installed as its users would do it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODE_SLOS, NODES
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.nodeslo import NodeSLO
from koordinator.base.errors import ConfigurationError
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.interface import PatchType
from koordinator.manager.node_policy.installed_extensions import GROUP, installed_extensions
from tests.waiting import once

EXAMPLE = Path(__file__).parents[3] / "docs/examples/node-slo-extension"
KEY = "example.com/disk-limits"
SYSTEM = "koordinator-system"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example is installed, without a network."""
    target = tmp_path_factory.mktemp("packages")
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check", "--quiet")
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", target, EXAMPLE], check=True)
    return target


@contextmanager
def koord_manager(kubeconfig: Path, packages: Path) -> Iterator[None]:
    """The program, with the folder of installed packages on its path."""
    flags = ["--enable-leader-election=false", "--controllers=nodeslo", "--feature-gates=WebhookFramework=false"]
    nowhere = ["--metrics-addr=0", "--health-probe-addr=0", "--enable-pprof=false"]
    command = [sys.executable, "-m", "koordinator.manager", f"--kubeconfig={kubeconfig}", *flags, *nowhere]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(packages)})
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


async def node_slo(client: KubeClient, part: Any) -> NodeSLO:
    """As soon as the extension's part is that."""
    return await once(client, NODE_SLOS, lambda each: (each.spec.extensions or {}).get("Object", {}).get(KEY) == part)


def test_a_package_that_is_installed_adds_its_part_to_every_node_slo(packages: Path, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(60), EmbeddedApi(ServerOptions()) as api:
            kubeconfig = tmp_path / "kubeconfig"
            api.write_kubeconfig(kubeconfig)
            client = await connect(ClientOptions(kubeconfig=str(kubeconfig)))
            for definition in custom_resource_definitions():
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
            await client.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
            await client.create(NODES, {"metadata": {"name": "n1", "labels": {"example.com/pool": "fast"}}})
            config_map = {"metadata": {"name": "slo-controller-config"}, "data": {"disk-limits": '{"fast": 500}'}}
            await client.create(CONFIG_MAPS, config_map, SYSTEM)
            with koord_manager(kubeconfig, packages):
                assert (await node_slo(client, {"bytesPerSecond": 500})).metadata.name == "n1"
                changed = {"data": {"disk-limits": '{"fast": 700}'}}
                await client.patch(CONFIG_MAPS, "slo-controller-config", changed, PatchType.MERGE, SYSTEM)
                await node_slo(client, {"bytesPerSecond": 700})
            await client.close()

    asyncio.run(scenario())


class NoExtension:
    key = KEY


class OtherKey:
    key = "another"
    default = None

    def merge(self, old: Any, data: Any) -> Any: ...

    def for_node(self, node: Any, configuration: Any) -> Any: ...


class Failing:
    def __init__(self) -> None:
        raise OSError("no such device")


def entry(folder: Path, value: str) -> EntryPoint:
    info = folder / "limits-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Name: limits\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{KEY} = {value}\n")
    (found,) = Distribution.at(info).entry_points
    return found


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("no_such_module:X", "cannot be made (ModuleNotFoundError: No module named 'no_such_module')"),
        (f"{__name__}:Failing", "cannot be made (OSError: no such device)"),
        (f"{__name__}:NoExtension", "gives <"),
        (f"{__name__}:OtherKey", "has key = 'another', and not the name of its entry point"),
    ],
)
def test_one_that_cannot_be_used_is_named_at_the_start(tmp_path: Path, value: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        installed_extensions(lambda: [entry(tmp_path, value)])
    assert str(raised.value).startswith(
        f"entry point {GROUP}: '{KEY}' is not usable: entry point {KEY} = {value} of limits 1.0 {problem}"
    )


def test_a_key_that_two_packages_declare_is_refused(packages: Path) -> None:
    (info,) = packages.glob("*.dist-info")
    (found,) = Distribution.at(info).entry_points
    sys.path.insert(0, str(packages))
    try:
        with pytest.raises(ConfigurationError, match=r"is also declared by disk-limits 0\.1\.0"):
            installed_extensions(lambda: [found, found])
    finally:
        sys.path.remove(str(packages))
