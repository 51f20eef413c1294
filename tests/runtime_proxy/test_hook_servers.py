"""The files by which hook servers register."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.runtime_proxy.hook_servers import HookFileError, HookPoint, HookServerFolder, parse_hook_file

_KOORDLET = """{
\t"remote-endpoint": "/var/run/koordlet/koordlet.sock",
\t"failure-policy": "Ignore",
\t"runtime-hooks": [
\t\t"PreRunPodSandbox",
\t\t"PreCreateContainer",
\t\t"PreUpdateContainerResources",
\t\t"PreRemoveRunPodSandbox"
\t]
}"""


@pytest.fixture
def folder(tmp_path: Path) -> HookServerFolder:
    return HookServerFolder(tmp_path / "hookserver.d")


def write(folder: Path, name: str, **keys: object) -> None:
    document = {"remote-endpoint": "/s", "runtime-hooks": ["PreRunPodSandbox"], **keys}
    (folder / "hookserver.d" / name).write_text(json.dumps(document))


def names(folder: HookServerFolder) -> list[str]:
    return [server.name for server in folder.servers(HookPoint.PRE_RUN_POD_SANDBOX)]


def test_the_file_of_koordlet_is_read() -> None:
    server = parse_hook_file("koordlet.json", _KOORDLET.encode())
    assert server.endpoint == Path("/var/run/koordlet/koordlet.sock")
    assert not server.fails
    # One of its hooks is for other runtimes, and never fires here.
    assert server.hooks == {
        HookPoint.PRE_RUN_POD_SANDBOX,
        HookPoint.PRE_CREATE_CONTAINER,
        HookPoint.PRE_UPDATE_CONTAINER_RESOURCES,
    }


@pytest.mark.parametrize(("policy", "fails"), [("Fail", True), ("fail", False), ("Ignore", False), (None, False)])
def test_only_fail_fails(policy: str | None, fails: bool) -> None:
    content = json.dumps({"remote-endpoint": "unix:///s", "failure-policy": policy, "runtime-hooks": None})
    assert parse_hook_file("x.json", content.encode()).fails is fails


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b"{}", "absolute path"),
        (b'{"remote-endpoint": "relative"}', "absolute path"),
        (b'{"remote-endpoint": "/%s"}' % (b"x" * 107), "at most 107 bytes"),
        (b'{"remote-endpoint": 1}', "remote-endpoint"),
        (b'{"remote-endpoint": "/s", "runtime-hooks": ["a", 1]}', "runtime-hooks"),
        (b" " * ((1 << 20) + 1), "longer than"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(content: bytes, text: str) -> None:
    with pytest.raises(HookFileError, match=text):
        parse_hook_file("x.json", content)


@given(st.binary(max_size=200))
def test_no_content_breaks_more_than_its_file(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    parent = tmp_path_factory.mktemp("f")
    folder = HookServerFolder(parent / "hookserver.d")
    folder.scan()
    write(parent, "good.json")
    (parent / "hookserver.d" / "bad.json").write_bytes(content)
    folder.scan()
    assert "good.json" in names(folder)


def test_a_folder_that_is_missing_is_made(folder: HookServerFolder, tmp_path: Path) -> None:
    assert not folder.scan()
    assert (tmp_path / "hookserver.d").is_dir()


def test_an_invalid_file_registers_nothing_until_it_is_mended(folder: HookServerFolder, tmp_path: Path) -> None:
    folder.scan()
    file = tmp_path / "hookserver.d" / "x.json"
    file.write_text("{")
    assert folder.scan()
    assert names(folder) == []
    write(tmp_path, "x.json")
    assert folder.scan()
    assert names(folder) == ["x.json"]


def test_a_file_that_became_invalid_stays_in_force(folder: HookServerFolder, tmp_path: Path) -> None:
    folder.scan()
    write(tmp_path, "x.json")
    folder.scan()
    (tmp_path / "hookserver.d" / "x.json").write_text("{")
    folder.scan()
    assert names(folder) == ["x.json"]


def test_a_file_that_is_gone_is_forgotten(folder: HookServerFolder, tmp_path: Path) -> None:
    folder.scan()
    write(tmp_path, "x.json")
    folder.scan()
    (tmp_path / "hookserver.d" / "x.json").unlink()
    folder.scan()
    assert (names(folder), folder.endpoints) == ([], set())


def test_a_change_within_the_same_second_is_seen(folder: HookServerFolder, tmp_path: Path) -> None:
    folder.scan()
    write(tmp_path, "x.json")
    folder.scan()
    (tmp_path / "hookserver.d" / "y").write_text("")
    os.replace(tmp_path / "hookserver.d" / "y", tmp_path / "hookserver.d" / "x.json")
    write(tmp_path, "x.json", **{"remote-endpoint": "/t"})
    folder.scan()
    assert folder.endpoints == {Path("/t")}


def test_nothing_is_read_again_without_a_change(folder: HookServerFolder, tmp_path: Path) -> None:
    folder.scan()
    write(tmp_path, "x.json")
    assert folder.scan()
    assert not folder.scan()


def test_servers_are_in_the_order_of_their_files(folder: HookServerFolder, tmp_path: Path) -> None:
    folder.scan()
    for name in ("b.json", "c.json", "a.json", "ignored.yaml"):
        write(tmp_path, name)
    folder.scan()
    assert names(folder) == ["a.json", "b.json", "c.json"]


def test_a_folder_that_cannot_be_read_changes_nothing(folder: HookServerFolder, tmp_path: Path) -> None:
    folder.scan()
    write(tmp_path, "x.json")
    folder.scan()
    (tmp_path / "hookserver.d").rename(tmp_path / "elsewhere")
    (tmp_path / "hookserver.d").write_text("a file")
    assert not folder.scan()
    assert names(folder) == ["x.json"]
