"""How to start this ``koord`` again, in words that work when they are pasted into a shell."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from koordinator.cli.data_folder import default_data_folder

_NAME: Final = "koord"


def own_command(started_as: str | None = None) -> str:
    """``koord`` where the PATH leads to it, else the path that it was started by (relative to the same folder)."""
    program = sys.argv[0] if started_as is None else started_as
    if program.endswith(".py"):
        # python -m: what is run is a module.
        return f"{shlex.quote(sys.executable)} -m koordinator.cli.main"
    found = shutil.which(_NAME)
    if os.sep not in program or (found is not None and _is_same(found, program)):
        return _NAME
    return shlex.quote(program)


def data_option(folder: Path) -> str:
    """`` --data FOLDER`` where a command would not find the folder by itself, else nothing."""
    return "" if folder == default_data_folder() else f" --data {shlex.quote(str(folder))}"


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
