from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from koordinator.cluster.pki import serving_files

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _contents(folder: Path, now: datetime) -> tuple[bytes, bytes]:
    files = serving_files(folder, now)
    return files.authority.read_bytes(), files.certificate.read_bytes()


def test_valid_certificates_are_reused(tmp_path: Path) -> None:
    assert _contents(tmp_path, NOW) == _contents(tmp_path, NOW + timedelta(days=300))


def test_the_serving_certificate_is_renewed_before_it_expires(tmp_path: Path) -> None:
    authority, certificate = _contents(tmp_path, NOW)
    same_authority, renewed = _contents(tmp_path, NOW + timedelta(days=336))
    assert (same_authority == authority, renewed == certificate) == (True, False)


def test_a_new_authority_signs_a_new_certificate(tmp_path: Path) -> None:
    _, certificate = _contents(tmp_path, NOW)
    (tmp_path / "ca.key").unlink()
    assert _contents(tmp_path, NOW)[1] != certificate


def test_a_broken_file_is_replaced(tmp_path: Path) -> None:
    _contents(tmp_path, NOW)
    (tmp_path / "server.key").write_bytes(b"broken")
    serving_files(tmp_path, NOW)
    assert b"PRIVATE KEY" in (tmp_path / "server.key").read_bytes()


def test_files_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    serving_files(tmp_path, NOW)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
