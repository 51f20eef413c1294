"""``koord manifests``: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.manifests.installation import OPTIONAL_PARTS, PARTS, Installation, manifest_files
from koordinator.cli.main import main
from tests.cli.manifests_help import examples
from tests.yaml_documents import yaml_documents

CONFIG = Path(__file__).resolve().parents[2] / "config"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["manifests", *arguments]) == 0
    return yaml_documents(capsys.readouterr().out)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["manifests", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_it_prints_every_document_of_the_installation(capsys: pytest.CaptureFixture[str]) -> None:
    files = manifest_files(Installation())
    wanted = [document for text in files.values() for document in yaml_documents(text)]
    assert printed(capsys) == wanted


def test_only_some_parts_can_be_requested(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {document["kind"] for document in printed(capsys, "--only", "crd,rbac")}
    assert kinds == {
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    }


def test_parts_keep_their_order_whatever_the_order_of_asking(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "--only", "manager,namespace")[0]["kind"] == "Namespace"


def test_parts_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {document["kind"] for document in printed(capsys, "--without", "scheduler,manager,descheduler")}
    assert not kinds & {"Deployment", "PodDisruptionBudget"}


def test_for_a_deletion_the_webhooks_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [document["kind"] for document in printed(capsys, "--for-deletion")]
    assert (kinds[0], kinds[-1]) == ("Service", "Namespace")


def test_options_reach_the_manifests(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--namespace=colocation", "--image=registry.example/k:1", "--replicas=3", "--webhook-failure-policy=Fail")
    wanted = manifest_files(Installation("colocation", "registry.example/k:1", 3, "Fail"))
    assert printed(capsys, *given) == [each for text in wanted.values() for each in yaml_documents(text)]


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("--only=crds", f"argument --only: 'crds': a list of {', '.join((*PARTS, *OPTIONAL_PARTS))} is allowed"),
        ("--without=,", f"argument --without: ',': a list of {', '.join((*PARTS, *OPTIONAL_PARTS))} is allowed"),
        ("--namespace=Co_Location", "argument --namespace: 'Co_Location': a lowercase RFC 1123 label must consist of"),
        ("--image=a b", "argument --image: 'a b': [REGISTRY/]NAME[:TAG][@DIGEST] is allowed, with {program} in NAME"),
        ("--replicas=0", "argument --replicas: '0': a number from 1 to 100 is allowed"),
        ("--webhook-failure-policy=Maybe", "argument --webhook-failure-policy: invalid choice: 'Maybe'"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_is_allowed(
    argument: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refusal(capsys, argument)


def test_a_folder_is_what_the_repository_has(tmp_path: Path) -> None:
    folder = tmp_path / "deploy"
    assert main(["manifests", str(folder)]) == 0
    written = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    # The units of config/systemd are for nodes, not for the API server.
    manifests = {str(path.relative_to(CONFIG)): path.read_text() for path in CONFIG.rglob("*.yaml")}
    for name, text in manifest_files(Installation(), OPTIONAL_PARTS).items():
        assert manifests.pop(name) == text
    assert written == manifests


def test_writing_the_same_again_is_no_mistake(tmp_path: Path) -> None:
    assert [main(["manifests", str(tmp_path)]), main(["manifests", str(tmp_path)])] == [0, 0]


def test_what_was_changed_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["manifests", str(tmp_path)])
    changed = tmp_path / "config-maps/slo-controller-config.yaml"
    changed.write_text("mine")
    capsys.readouterr()
    assert (main(["manifests", str(tmp_path)]), changed.read_text()) == (1, "mine")
    assert capsys.readouterr().err == (
        f"koord: {changed} is there already and differs (1 such files): --force replaces them, or name another folder\n"
    )


def test_what_was_changed_is_replaced_by_force(tmp_path: Path) -> None:
    main(["manifests", str(tmp_path)])
    changed = tmp_path / "namespace.yaml"
    changed.write_text("mine")
    assert (main(["manifests", str(tmp_path), "--force"]), changed.read_text()) == (
        0,
        (CONFIG / "namespace.yaml").read_text(),
    )


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert main(["manifests", str(file)]) == 1
    assert capsys.readouterr().err.startswith(f"koord: cannot write to {file}: ")


def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    command = f"{shlex.quote(sys.executable)} -m koordinator.cli.main manifests | head -n 1"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("apiVersion: v1\n", "")


@pytest.mark.parametrize("example", examples())
def test_the_examples_of_the_help_text_are_understood(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What kubectl makes of them, tests/real says."""
    monkeypatch.chdir(tmp_path)
    command, *arguments = shlex.split(example.partition(" | ")[0].partition(" && ")[0])
    assert (command, main(arguments)) == ("koord", 0)


def test_the_help_text_has_examples() -> None:
    assert len(examples()) >= 5
