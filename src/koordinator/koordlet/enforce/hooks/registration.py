"""The files by which runtime proxies find the hook server: its socket, and a description in their folder."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from koordinator.base.errors import KoordinatorError
from koordinator.koordlet.enforce.hooks.options import HookOptions
from koordinator.koordlet.enforce.hooks.registry import Stage
from koordinator.koordlet.enforce.hooks.starting import FAIL, IGNORE

_NAME = "koordlet.json"


class RegistrationError(KoordinatorError):
    """Runtime proxies cannot be served, or the registration cannot be written."""


def clear_socket(path: Path) -> None:
    """Make the folder, and remove the socket of an earlier run. RegistrationError if that fails."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
            raise RegistrationError(f"{path}: there is a file that is not a socket")
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RegistrationError(f"{path}: {error.strerror}") from error


def register(options: HookOptions, stages: Iterable[Stage]) -> None:
    """Register at runtime proxies for the stages, with the socket. RegistrationError if the file cannot be written."""
    document = {
        "remote-endpoint": options.endpoint,
        "failure-policy": FAIL if options.proxy_fails else IGNORE,
        "runtime-hooks": [stage.value for stage in stages if stage not in options.disabled_stages],
    }
    folder = Path(options.registration_folder)
    # Proxies look at every file whose name ends in json, and must not see half of one.
    fresh = folder / f"{_NAME}.new"
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh.write_text(json.dumps(document, indent="\t"))
        os.replace(fresh, folder / _NAME)
    except OSError as error:
        raise RegistrationError(f"{folder}: {error.strerror}") from error
