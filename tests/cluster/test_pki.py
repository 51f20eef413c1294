from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from koordinator.cluster.pki import CertificateError, renew_serving, serving_files

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


@pytest.mark.parametrize("step", [timedelta(minutes=10), timedelta(days=200), timedelta(days=20 * 365)])
def test_a_clock_that_steps_back_leaves_the_authority_as_it_is(tmp_path: Path, step: timedelta) -> None:
    """Every kubeconfig out there names it."""
    authority, _ = _contents(tmp_path, NOW)
    assert _contents(tmp_path, NOW - step)[0] == authority


def test_clients_with_the_same_clock_accept_the_server_after_a_step_back(tmp_path: Path) -> None:
    _contents(tmp_path, NOW)
    stepped = NOW - timedelta(days=300)
    files = serving_files(tmp_path, stepped)
    for path in (files.authority, files.certificate):
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        assert certificate.not_valid_before_utc <= stepped < certificate.not_valid_after_utc


def test_a_step_beyond_what_certificates_bear_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _contents(tmp_path, NOW)
    serving_files(tmp_path, NOW - timedelta(days=20 * 365))
    assert "set the clock right" in caplog.text


def test_the_step_back_forth_makes_no_difference(tmp_path: Path) -> None:
    authority, certificate = _contents(tmp_path, NOW)
    _contents(tmp_path, NOW - timedelta(minutes=2))
    assert _contents(tmp_path, NOW) == (authority, certificate)


def test_an_authority_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    """A disk or a permission that fails now may be put right; a new authority is for good."""
    _contents(tmp_path, NOW)
    (tmp_path / "ca.key").unlink()
    (tmp_path / "ca.key").mkdir()
    with pytest.raises(CertificateError, match=r"ca\.key cannot be read"):
        serving_files(tmp_path, NOW)


def test_a_new_authority_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _contents(tmp_path, NOW)
    assert caplog.text == ""
    (tmp_path / "ca.crt").write_bytes(b"")
    _contents(tmp_path, NOW)
    assert "kubeconfigs" in caplog.text


def test_a_server_that_runs_for_a_year_renews_its_certificate_and_not_the_authority(tmp_path: Path) -> None:
    authority, certificate = _contents(tmp_path, NOW)
    assert not renew_serving(tmp_path, NOW + timedelta(days=300))
    assert renew_serving(tmp_path, NOW + timedelta(days=340))
    assert (tmp_path / "ca.crt").read_bytes() == authority
    assert (tmp_path / "server.crt").read_bytes() != certificate
    assert not renew_serving(tmp_path, NOW + timedelta(days=341))
