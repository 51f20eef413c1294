"""Certificate files that are replaced atomically, in the layout that kubelet uses for mounted Secrets.

The files lie in a folder named after its time of writing, ``..data`` links to that folder, and the visible names link
through ``..data``; replacing one link replaces all files. Keys are readable by their owner alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import Final

from koordinator.base.errors import KoordinatorError
from koordinator.manager.webhook.certificates import Certificates

AUTHORITY_KEY: Final = "ca-key.pem"
AUTHORITY: Final = "ca-cert.pem"
KEY: Final = "key.pem"
CERTIFICATE: Final = "cert.pem"
TLS_KEY: Final = "tls.key"
TLS_CERTIFICATE: Final = "tls.crt"
NAMES: Final = (AUTHORITY_KEY, AUTHORITY, KEY, CERTIFICATE, TLS_KEY, TLS_CERTIFICATE)

_DATA: Final = "..data"
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


class CertificateFilesError(KoordinatorError):
    """The folder of certificates cannot be read or written; the text names it."""


def to_files(certificates: Certificates) -> dict[str, bytes]:
    """The content of each file, and of each key of the Secret."""
    return {
        AUTHORITY_KEY: certificates.authority_key,
        AUTHORITY: certificates.authority,
        KEY: certificates.key,
        TLS_KEY: certificates.key,
        CERTIFICATE: certificates.certificate,
        TLS_CERTIFICATE: certificates.certificate,
    }


def from_files(files: Mapping[str, bytes]) -> Certificates:
    """The certificates in files of these contents; a missing file becomes empty PEM data."""
    return Certificates(
        authority_key=files.get(AUTHORITY_KEY, b""),
        authority=files.get(AUTHORITY, b""),
        key=files.get(KEY, b""),
        certificate=files.get(CERTIFICATE, b""),
    )


def read_files(folder: Path) -> Certificates | None:
    """The certificates in the folder; None unless all six files exist. Raises CertificateFilesError."""
    try:
        return from_files({name: (folder / name).read_bytes() for name in NAMES})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CertificateFilesError(f"{folder}: certificates cannot be read: {error}") from error


def write_files(folder: Path, certificates: Certificates, now: datetime) -> bool:
    """Make the folder show these certificates, atomically; False if it already does. Raises CertificateFilesError."""
    files = to_files(certificates)
    try:
        _prepare(folder)
        if _shown(folder) == files:
            return False
        _project(folder, files, now)
    except OSError as error:
        raise CertificateFilesError(f"{folder}: certificates cannot be written: {error}") from error
    return True


def _prepare(folder: Path) -> None:
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    # A mounted folder belongs to another owner, who has set its permissions.
    with suppress(PermissionError):
        folder.chmod(_FOLDER_MODE)


def _shown(folder: Path) -> dict[str, bytes] | None:
    """The file contents that the folder shows through links; None where a name is absent, or a plain file that would
    not follow the links."""
    try:
        if any((folder / name).readlink() != Path(_DATA, name) for name in NAMES):
            return None
        return {name: (folder / name).read_bytes() for name in NAMES}
    except OSError:
        return None


def _project(folder: Path, files: Mapping[str, bytes], now: datetime) -> None:
    version = folder / f"..{now:%Y_%m_%d_%H_%M_%S}.{token_hex(5)}"
    version.mkdir(mode=_FOLDER_MODE)
    try:
        for name, content in files.items():
            _write(version / name, content)
        _link(folder / _DATA, version.name)
    except BaseException:
        shutil.rmtree(version, ignore_errors=True)
        raise
    for name in files:
        _link(folder / name, f"{_DATA}/{name}")
    _remove_old_versions(folder, version.name)


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _link(path: Path, target: str) -> None:
    """Make ``path`` a link to ``target`` atomically, whatever it was before."""
    with suppress(OSError):
        if path.readlink() == Path(target):
            return
    temporary = path.with_name(f"{path.name}_{token_hex(5)}")
    temporary.symlink_to(target)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _remove_old_versions(folder: Path, current: str) -> None:
    """Remove versions that are no longer linked, also those of a process that ended between writing and linking."""
    for entry in folder.glob("..2*"):
        if entry.name != current and entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
