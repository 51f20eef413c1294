"""Commands are printed as they work: by the name on the PATH, or by the path that koord was started by."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from koordinator.cli.data_folder import default_data_folder
from koordinator.cli.local_cluster.programs import LocalClusterOptions
from koordinator.cli.own_command import data_option, own_command
from koordinator.cli.up import path_hint, welcome


def install(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / "koord"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def _empty_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


def test_a_path_is_kept_and_quoted(tmp_path: Path) -> None:
    assert own_command(".venv/bin/koord") == ".venv/bin/koord"
    assert own_command("/my tools/koord") == "'/my tools/koord'"


def test_the_name_is_enough_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = install(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(program.parent))
    assert own_command(str(program)) == "koord"
    assert own_command("koord") == "koord"


def test_another_koord_on_the_path_is_not_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = install(tmp_path / "mine"), install(tmp_path / "other")
    monkeypatch.setenv("PATH", str(other.parent))
    assert own_command(str(mine)) == str(mine)


def test_a_module_is_run_by_the_same_python() -> None:
    assert own_command("/src/koordinator/cli/main.py") == f"{sys.executable} -m koordinator.cli.main"


def test_only_what_is_not_on_the_path_gets_a_hint(tmp_path: Path) -> None:
    assert path_hint("koord") == ""
    assert path_hint(f"{sys.executable} -m koordinator.cli.main") == ""
    assert path_hint("'/my tools/koord'") == "To have koord on the PATH: export PATH='/my tools':$PATH"


def test_the_folder_is_named_where_it_is_not_the_usual_one(tmp_path: Path) -> None:
    assert data_option(default_data_folder()) == ""
    assert data_option(Path("/my data")) == " --data '/my data'"


def options(data: Path) -> LocalClusterOptions:
    return LocalClusterOptions(
        data=data,
        kubeconfig=data / "kubeconfig",
        port=1,
        nodes=1,
        scheduler_port=2,
        manager_port=3,
        manager_health_port=4,
        webhook_port=5,
    )


def commands(*names: str, has_kubectl: bool = True, taken: tuple[str, ...] = ()) -> list[str]:
    text = welcome(
        options(Path("/my data")), names, koord="koord", has_kubectl=has_kubectl, taken_pod_names=taken, unhealthy=()
    )
    return [line.strip() for line in text.splitlines() if line.startswith("  ")]


def test_everything_is_suggested_where_everything_runs() -> None:
    assert commands("apiserver", "nodes", "manager", "scheduler") == [
        "export KUBECONFIG='/my data/kubeconfig'",
        "kubectl get nodes",
        'kubectl run web --image=nginx --overrides=\'{"spec":{"priorityClassName":"koord-prod"}}\'',
        "kubectl get pods -o wide",
        "koord explain pod web --data '/my data'",
        "koord status --data '/my data'",
    ]


@pytest.mark.parametrize(
    ("names", "absent"),
    [
        (("apiserver",), ("kubectl get nodes", "explain", "kubectl run")),
        (("apiserver", "nodes"), ("explain", "kubectl run")),
        (("nodes", "scheduler"), ("explain", "kubectl run")),
    ],
)
def test_what_was_not_started_is_not_suggested(names: tuple[str, ...], absent: tuple[str, ...]) -> None:
    printed = "\n".join(commands(*names))
    assert [text for text in absent if text in printed] == []


def test_a_pod_that_exists_is_not_created_again() -> None:
    printed = commands("apiserver", "nodes", "scheduler", taken=("web",))
    assert not any("kubectl run" in line for line in printed)
    assert any("explain pod web" in line for line in printed)


def test_a_missing_kubectl_is_said() -> None:
    text = welcome(options(Path("/d")), ("apiserver",), koord="koord", has_kubectl=False, taken_pod_names=(),
                   unhealthy=("nodes",))  # fmt: skip
    assert "kubectl is not on the PATH" in text
    assert "not healthy yet: nodes" in text
