"""A kubeconfig of ours is replaced and removed; anything else is left as it is, byte for byte."""

from __future__ import annotations

import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from koordinator.cluster.kubeconfig_file import (
    ForeignKubeconfig,
    check_kubeconfig,
    kubeconfig,
    remove_kubeconfig,
    write_kubeconfig,
)

URL = "https://127.0.0.1:6443"
OURS = kubeconfig(URL, b"authority", "token")


def _write(path: Path) -> None:
    write_kubeconfig(path, "https://127.0.0.1:7000", b"another authority", "another token")


def _with_another_cluster() -> str:
    document = yaml.safe_load(OURS)
    document["clusters"].append({"name": "work", "cluster": {"server": "https://work.example"}})
    return yaml.safe_dump(document)


def _with_a_certificate() -> str:
    document = yaml.safe_load(OURS)
    document["users"][0]["user"]["client-key-data"] = "c2VjcmV0"
    return yaml.safe_dump(document)


FOREIGN = {
    "another cluster beside ours": _with_another_cluster(),
    "another credential": _with_a_certificate(),
    "a comment": OURS + "# my notes\n",
    "a comment alone": "# to be filled in\n",
    "another kubeconfig": OURS.replace("koordinator", "kind-kind"),
    "an extension": OURS + "extensions: []\n",
    "no YAML": "a: b: c",
    "no kubeconfig": "[1, 2]",
    "a text": "precious",
}


@pytest.mark.parametrize("act", [check_kubeconfig, _write, remove_kubeconfig])
@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN.keys())
def test_foreign_content_is_left_as_it_is(tmp_path: Path, content: str, act: Callable[[Path], None]) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ForeignKubeconfig) as refused:
        act(path)
    assert path.read_text() == content
    assert (f"kubeconfig {path} " in str(refused.value), "KUBECONFIG=" in str(refused.value)) == (True, True)


@pytest.mark.parametrize("content", [OURS, yaml.safe_dump(yaml.safe_load(OURS)), "", "\n"])
def test_our_own_is_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    _write(path)
    assert yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:7000"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_our_own_is_removed(tmp_path: Path) -> None:
    _write(tmp_path / "config")
    remove_kubeconfig(tmp_path / "config")
    remove_kubeconfig(tmp_path / "config")  # nothing is there any more
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_made(tmp_path: Path) -> None:
    _write(tmp_path / "a" / "b" / "config")
    assert (tmp_path / "a" / "b" / "config").exists()


def test_what_is_no_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ForeignKubeconfig, match="cannot be read"):
        _write(tmp_path)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_the_default_namespace_that_kubectl_set_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "config"
    _write(path)
    command = ["kubectl", "config", "set-context", "--current", "--namespace=shop", f"--kubeconfig={path}"]
    subprocess.run(command, check=True, capture_output=True)
    _write(path)
    (context,) = yaml.safe_load(path.read_text())["contexts"]
    assert context["context"]["namespace"] == "shop"
