"""The installation on an empty real API server, as README and the help text say: applied, served, used, removed."""

from __future__ import annotations

import json
import shlex
import urllib.request
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.rendered import NOT_RESTRICTED, configured, pod_specs
from tests.chart.renderings import recorded
from tests.cli.manifests_help import examples
from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.installation import (
    NAMESPACE,
    PROGRAMS,
    REPOSITORY,
    account_kubeconfig,
    create_node,
    eventually,
    node_of,
    program,
    report_usage,
    shell,
)
from tests.real.manager_cluster import configurations
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.programs import RealPrograms

APPLY = "koord manifests | kubectl apply -f -"
RECIPES = (APPLY, "kubectl apply -k config/")
CO_LOCATION = "kubectl apply -f docs/examples/co-location.yaml"
CORE = "/api/v1"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodemetrics.slo.koordinator.sh"


def container_of(name: str) -> dict[str, Any]:
    deployment = next(yaml.safe_load_all((REPOSITORY / f"config/deployments/{name}.yaml").read_text()))
    container: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
    return container


def start_scheduler(running: ExitStack, plane: ControlPlane, folder: Path, port: int) -> Path:
    """With the arguments of the Deployment, but for a port that is free, under its service account. Returns its log."""
    folder.mkdir(exist_ok=True)
    container = container_of("koord-scheduler")
    config_map = plane.request("GET", f"{CORE}/namespaces/{NAMESPACE}/configmaps/koord-scheduler-config")[1]
    configuration = folder / "koord-scheduler.config"
    configuration.write_text(config_map["data"]["koord-scheduler-config"])
    replaced = {
        "--config=/config/koord-scheduler.config": f"--config={configuration}",
        "--port=10251": f"--port={port}",
        "--secure-port=10259": f"--secure-port={free_ports(1)[0]}",
    }
    assert set(replaced) <= set(container["args"])
    arguments = [replaced.get(argument, argument) for argument in container["args"]]
    command = [str(PROGRAMS / container["command"][0]), *arguments]
    kubeconfig = account_kubeconfig(plane, "koord-scheduler", folder)
    log = folder / "scheduler.log"
    running.enter_context(program([*command, f"--kubeconfig={kubeconfig}"], log))
    return log


def start_manager(running: ExitStack, plane: ControlPlane, folder: Path) -> ManagerProcess:
    """Under its service account, with its webhooks on loopback."""
    folder.mkdir(exist_ok=True)
    kubeconfig = account_kubeconfig(plane, "koord-manager", folder)
    return running.enter_context(manager(OURS, kubeconfig, folder / "manager"))


def use_it(plane: ControlPlane, *logs: Path) -> None:
    """A node, an online pod on it, a report of its agent, batch capacity, a batch pod in it."""
    create_node(plane, "n1")
    shell(CO_LOCATION, plane.kubeconfig)
    eventually(lambda: node_of(plane, "web") == "n1", "node of the online pod", *logs)
    eventually(lambda: report_usage(plane, "n1"), "NodeMetric", *logs)
    eventually(lambda: node_of(plane, "report") == "n1", "node of the batch pod", *logs)
    allocatable = plane.request("GET", f"{CORE}/nodes/n1")[1]["status"]["allocatable"]
    assert int(allocatable["kubernetes.io/batch-cpu"]) >= 1000


def entries(plane: ControlPlane) -> list[dict[str, Any]]:
    return [entry for each in configurations(plane).values() for entry in each.get("webhooks", [])]


@pytest.mark.parametrize("recipe", RECIPES)
def test_on_an_empty_cluster_pods_are_placed_with_the_rights_that_are_installed(
    recipe: str, empty: ControlPlane, tmp_path: Path
) -> None:
    shell(recipe, empty.kubeconfig)
    with ExitStack() as running:
        log = start_scheduler(running, empty, tmp_path, *free_ports(1))
        served = start_manager(running, empty, tmp_path)
        served.wait_ready()
        use_it(empty, log, served.log)
        assert {entry["name"] for entry in entries(empty)} >= {"mpod-create.koordinator.sh", "vpod.koordinator.sh"}
    assert "forbidden" not in log.read_text() + served.log.read_text()


def responses(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return int(response.status) == 200
    except OSError:
        return False


def test_both_replicas_pass_their_probes_though_one_leads(empty: ControlPlane, tmp_path: Path) -> None:
    """Otherwise a Deployment with two replicas would never be complete."""
    shell(APPLY, empty.kubeconfig)
    with ExitStack() as running:
        ports = free_ports(2)
        logs = [start_scheduler(running, empty, tmp_path / f"scheduler-{port}", port) for port in ports]
        managers = [start_manager(running, empty, tmp_path / f"manager-{number}") for number in range(2)]
        requested = [("koord-scheduler", port) for port in ports]
        requested += [("koord-manager", served.health_port) for served in managers]
        for name, port in requested:
            for probe in ("readinessProbe", "livenessProbe"):
                path = container_of(name)[probe]["httpGet"]["path"]
                eventually(partial(responses, port, path), f"{path} of {name}", *logs, *(each.log for each in managers))


def versions(plane: ControlPlane) -> dict[str, str]:
    """What is installed, and the version of each."""
    listed = "koord manifests | kubectl get -f - -o json"
    items = json.loads(shell(listed, plane.kubeconfig))["items"]
    return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in items}


@pytest.mark.parametrize("recipe", RECIPES)
def test_applying_again_changes_nothing(recipe: str, empty: ControlPlane) -> None:
    shell(recipe, empty.kubeconfig)
    before = versions(empty)
    shell(recipe, empty.kubeconfig)
    assert versions(empty) == before
    assert len(before) > 30


def test_applying_again_leaves_webhooks_that_are_served_alone(empty: ControlPlane, tmp_path: Path) -> None:
    shell(APPLY, empty.kubeconfig)
    with ExitStack() as running:
        start_manager(running, empty, tmp_path).wait_ready()
        before = entries(empty)
        shell(APPLY, empty.kubeconfig)
        assert entries(empty) == before != []


def test_the_original_takes_over_the_webhooks_that_were_installed(
    empty: ControlPlane, real_programs: RealPrograms, tmp_path: Path
) -> None:
    original = real_programs.original / "koord-manager"
    if not original.is_file():
        pytest.skip(f"the original's koord-manager is absent: put it into {real_programs.original}")
    shell(APPLY, empty.kubeconfig)
    with manager((str(original),), empty.kubeconfig, tmp_path) as running:
        running.wait_ready()
        assert {entry["name"] for entry in entries(empty)} >= {"mpod-create.koordinator.sh", "vpod.koordinator.sh"}


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
def test_a_cluster_without_a_manager_takes_pods(policy: str, empty: ControlPlane) -> None:
    shell(f"koord manifests --webhook-failure-policy={policy} | kubectl apply -f -", empty.kubeconfig)
    assert shell(CO_LOCATION, empty.kubeconfig).splitlines() == ["pod/web created", "pod/report created"]


@pytest.mark.parametrize("source", ["config", "chart"])
def test_only_what_works_on_nodes_is_kept_out_of_a_namespace_with_the_restricted_security_standard(
    source: str, real_control_plane: ControlPlane
) -> None:
    namespace = f"restricted-{source}"
    metadata = {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    assert real_control_plane.request("POST", f"{CORE}/namespaces", {"metadata": metadata})[0] == 201
    refused: set[str] = set()
    for name, spec in pod_specs(configured() if source == "config" else recorded("defaults")):
        # No such account and no such class is in that namespace; what is asked here is not about them.
        asked = {key: value for key, value in spec.items() if key not in ("serviceAccountName", "priorityClassName")}
        pod = {"metadata": {"name": name}, "spec": asked | {"automountServiceAccountToken": False}}
        code, response = real_control_plane.request("POST", f"{CORE}/namespaces/{namespace}/pods?dryRun=All", pod)
        assert code in (201, 403), response.get("message")
        if code == 403:
            assert 'violates PodSecurity "restricted:latest"' in response["message"]
            refused.add(name)
    assert refused == set(NOT_RESTRICTED)


def test_what_is_removed_leaves_no_webhooks_and_keeps_custom_resources(empty: ControlPlane) -> None:
    shell(APPLY, empty.kubeconfig)
    shell("koord manifests --without namespace,crd --for-deletion | kubectl delete -f -", empty.kubeconfig)
    assert [configuration["reason"] for configuration in configurations(empty).values()] == ["NotFound", "NotFound"]
    assert empty.request("GET", DEFINITION)[0] == 200


def test_the_examples_of_the_help_text_work(empty: ControlPlane, tmp_path: Path) -> None:
    """One after another, as somebody tries them out. Between a cluster and manifests there may be a difference."""
    for example in examples():
        tolerant = f"{example} || [ $? -eq 1 ]" if "kubectl diff" in example else example
        shell(tolerant, empty.kubeconfig, tmp_path)


def readme_commands() -> list[str]:
    """The last block of commands in README's section on real clusters: the way without an image."""
    section = (REPOSITORY / "README.md").read_text().split("## On a real cluster")[1].split("\n## ")[0]
    blocks = section.split("To try it without an image")[1].splitlines()
    return [line.strip() for line in blocks if line.startswith("    ")]


def test_the_recipe_of_the_readme_works(empty: ControlPlane, tmp_path: Path) -> None:
    """Word for word, but for where the programs are, ports that are free, and programs that go on in the background."""
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    (home / ".kube/config").write_text(empty.kubeconfig.read_text())
    install, scheduler, controllers, try_it = readme_commands()
    assert try_it == CO_LOCATION
    scheduler_port, metrics_port, health_port = free_ports(3)
    ports = {
        scheduler: [f"--port={scheduler_port}"],
        controllers: [
            f"--metrics-addr=127.0.0.1:{metrics_port}",
            f"--health-probe-addr=127.0.0.1:{health_port}",
            "--enable-pprof=false",
        ],
    }
    shell(install.replace(".venv/bin/", ""), empty.kubeconfig)
    with ExitStack() as running:
        logs = [tmp_path / "scheduler.log", tmp_path / "manager.log"]
        for command, log in zip((scheduler, controllers), logs, strict=True):
            words = [word.replace("$HOME", str(home)) for word in shlex.split(command)]
            assert words[0].startswith(".venv/bin/")
            words[0] = str(PROGRAMS / Path(words[0]).name)
            running.enter_context(program([*words, *ports[command]], log))
        use_it(empty, *logs)
