"""Files of models: in the original's format, whole or not there at all, and never a reason to fail."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordinator.koordlet.observe.prediction.checkpoints import CheckpointFolder, CheckpointFolderError, SavedModel
from koordinator.model.decaying_histogram import Checkpoint

NOW = datetime(2026, 3, 1, 12, 30, 15, tzinfo=UTC)
REFERENCE = datetime(2026, 3, 1, tzinfo=UTC)
UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
SAVED = SavedModel(Checkpoint(REFERENCE, {3: 10000, 7: 12}, 81.5), Checkpoint(REFERENCE, {120: 10000}, 7.25), NOW)
BY_THE_ORIGINAL = (
    f'{{"UID":"{UID}",'
    '"CPU":{"referenceTimestamp":"2026-03-01T00:00:00Z","bucketWeights":{"3":10000,"7":12},"totalWeight":81.5},'
    '"Memory":{"referenceTimestamp":"2026-03-01T00:00:00Z","bucketWeights":{"120":10000},"totalWeight":7.25},'
    '"LastUpdated":"2026-03-01T12:30:15Z"}\n'
)


def test_a_file_is_what_the_original_writes(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path / "made").save(UID, SAVED)
    assert json.loads((tmp_path / "made" / UID).read_text()) == json.loads(BY_THE_ORIGINAL)


def test_a_file_of_the_original_is_read(tmp_path: Path) -> None:
    (tmp_path / UID).write_text(BY_THE_ORIGINAL)
    assert CheckpointFolder(tmp_path).load() == {UID: SAVED}


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert CheckpointFolder(tmp_path / "absent").load() == {}


def test_what_a_killed_process_has_left_unfinished_is_removed(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(UID, SAVED)
    (tmp_path / f"{UID}.tmp").write_text(BY_THE_ORIGINAL[:40])
    assert folder.load() == {UID: SAVED}
    assert [file.name for file in tmp_path.iterdir()] == [UID]


def test_what_is_no_model_is_reported_and_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "README").write_text("not ours")
    (tmp_path / "lost+found").mkdir()
    with caplog.at_level(logging.WARNING):
        assert CheckpointFolder(tmp_path).load() == {}
    assert (tmp_path / "README").read_text() == "not ours"
    assert "README is no checkpoint of a model, which begins anew" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        BY_THE_ORIGINAL[:100],
        "null",
        "[]",
        "{}",
        BY_THE_ORIGINAL.replace('"120"', '"one"'),
        BY_THE_ORIGINAL.replace("2026-03-01T00", "yesterday"),
        BY_THE_ORIGINAL.replace("81.5", '"81.5"'),
        " " * (1 << 20) + BY_THE_ORIGINAL,
    ],
)
def test_a_torn_file_costs_its_own_model_only(tmp_path: Path, text: str) -> None:
    (tmp_path / UID).write_text(text)
    CheckpointFolder(tmp_path).save("other", SAVED)
    assert CheckpointFolder(tmp_path).load() == {"other": SAVED}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_no_file_makes_reading_fail(tmp_path: Path, content: bytes) -> None:
    (tmp_path / UID).write_bytes(content)
    assert CheckpointFolder(tmp_path).load() == {}


@pytest.mark.parametrize("name", ["../passwd", "a/b", "", ".", ".hidden"])
def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = CheckpointFolder(tmp_path / "inner")
    with pytest.raises(CheckpointFolderError, match="is no name that a file of a model may have"):
        folder.save(name, SAVED)
    assert list(tmp_path.rglob("*")) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointFolderError, match=f"{tmp_path}/file/{UID}: "):
        CheckpointFolder(tmp_path / "file").save(UID, SAVED)


def test_a_full_disk_leaves_the_old_file_and_no_half_of_a_new_one(tmp_path: Path) -> None:
    """A write to /dev/full fails as one to a full disk does."""
    folder = CheckpointFolder(tmp_path)
    folder.save(UID, SAVED)
    (tmp_path / f"{UID}.tmp").symlink_to("/dev/full")
    with pytest.raises(CheckpointFolderError, match="No space left on device"):
        folder.save(UID, SavedModel(SAVED.memory, SAVED.cpu, NOW))
    assert folder.load() == {UID: SAVED}
    assert [file.name for file in tmp_path.iterdir()] == [UID]


def test_removing_twice_is_no_mistake(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(UID, SAVED)
    folder.remove(UID)
    folder.remove(UID)
    assert folder.load() == {}
