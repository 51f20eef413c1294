"""What is remembered survives the process, whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from koordinator.api.protobuf.runtime_hooks_pb2 import PodSandboxHookRequest
from koordinator.runtime_proxy.checkpoints import Checkpoints, CheckpointTable


def table(folder: Path) -> CheckpointTable[PodSandboxHookRequest]:
    opened = CheckpointTable(folder, PodSandboxHookRequest)
    opened.load()
    return opened


def pod(name: str) -> PodSandboxHookRequest:
    entry = PodSandboxHookRequest()
    entry.pod_meta.name = name
    return entry


def test_an_entry_is_there_after_a_restart(tmp_path: Path) -> None:
    table(tmp_path).put("id", pod("web"))
    assert table(tmp_path).get("id") == pod("web")


def test_a_deleted_entry_is_not(tmp_path: Path) -> None:
    first = table(tmp_path)
    first.put("id", pod("web"))
    first.delete("id")
    assert "id" not in table(tmp_path)


@given(cut=st.integers(0, 11), flipped=st.integers(0, 200))
@example(cut=11, flipped=0)
def test_a_damaged_file_is_no_entry(tmp_path_factory: pytest.TempPathFactory, cut: int, flipped: int) -> None:
    folder = tmp_path_factory.mktemp("kept")
    table(folder).put("id", pod("web"))
    content = bytearray((folder / "id").read_bytes())
    # The first four bytes, which say whose file it is, are left: without them it stays as one of others.
    content[4 + flipped % (len(content) - 4)] ^= 1
    (folder / "id").write_bytes(content[: len(content) - cut])
    assert len(table(folder)) == 0
    assert list(folder.iterdir()) == []


def test_an_unfinished_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "id.new").write_bytes(b"KRP1")
    assert len(table(tmp_path)) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["f" * 64, "f" * 64 + ".new"])
def test_a_file_that_a_crash_left_empty_is_removed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert len(table(tmp_path)) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"KR", b"key: value", b"\x89PNG" + bytes(100)])
@pytest.mark.parametrize("name", ["hosts", "notes.new", "e" * 63, ".hidden"])
def test_the_files_of_others_stay(tmp_path: Path, name: str, content: bytes) -> None:
    """The folder is a flag: it may be the wrong one."""
    (tmp_path / name).write_bytes(content)
    assert len(table(tmp_path)) == 0
    assert (tmp_path / name).read_bytes() == content


def test_what_is_no_file_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / ("a" * 64))
    assert len(table(tmp_path)) == 0
    assert len(list(tmp_path.iterdir())) == 3


def test_what_is_given_out_is_a_copy(tmp_path: Path) -> None:
    opened = table(tmp_path)
    opened.put("id", pod("web"))
    given_out = opened.get("id")
    assert given_out is not None
    given_out.pod_meta.name = "changed"
    assert opened.get("id") == pod("web")


@pytest.mark.parametrize("identifier", ["../x", "a/b", "", ".hidden", "x" * 300, "\0"])
def test_an_id_that_is_no_file_name_is_kept_in_memory_only(tmp_path: Path, identifier: str) -> None:
    folder = tmp_path / "kept"
    opened = table(folder)
    opened.put(identifier, pod("web"))
    assert opened.get(identifier) == pod("web")
    assert [*tmp_path.rglob("*")] == [folder]
    opened.delete(identifier)


def test_a_partial_entry_is_not_written(tmp_path: Path) -> None:
    opened = table(tmp_path)
    opened.put("id", pod("web"), partial=True)
    assert opened.is_partial("id")
    assert list(tmp_path.iterdir()) == []
    opened.put("id", pod("web"))
    assert not opened.is_partial("id")


def test_a_disk_that_fails_leaves_the_entry_in_memory(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    opened = table(folder)
    folder.rmdir()
    opened.put("id", pod("web"))
    assert opened.get("id") == pod("web")


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "kept")
    kept.load()
    kept.pods.put("id", pod("web"))
    for path in (tmp_path / "kept" / "pods", tmp_path / "kept" / "pods" / "id"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_what_the_runtime_does_not_have_is_forgotten(tmp_path: Path) -> None:
    opened = table(tmp_path)
    opened.put("a", pod("a"))
    opened.put("b", pod("b"))
    opened.keep_only(["b", "c"])
    assert len(table(tmp_path)) == 1
