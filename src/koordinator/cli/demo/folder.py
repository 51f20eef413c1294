"""Where a demonstration keeps its state: a folder that is deleted afterwards, or one that stays."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from koordinator.cli.data_folder import DataFolderError, default_data_folder, lock_data_folder
from koordinator.cluster.kubeconfig_file import remove_kubeconfig

_MARK: Final = "koord-demo"
"""A file by which a folder is known as a demonstration's: only such a one is emptied."""
_OURS: Final = ("api", "logs", "webhook-certificates")


def kept_folder() -> Path:
    """Where ``--keep`` keeps the cluster by default; not where ``koord up`` has its own."""
    return default_data_folder().with_name("koordinator-demo")


@contextmanager
def demo_folder(folder: Path | None) -> Iterator[Path]:
    """Hold ``folder``, emptied of what an earlier demonstration has left; a temporary one for None.

    Raises DataFolderInUse, and DataFolderError for a folder with the cluster of another program in it.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="koord-demo-") as temporary:
            yield Path(temporary)
        return
    with lock_data_folder(folder, "koord demo"):
        if not (folder / _MARK).exists() and any((folder / name).exists() for name in _OURS):
            raise DataFolderError(
                f"{folder} holds a cluster that is not a demonstration's, and is left alone; choose another with --data"
            )
        for name in _OURS:
            shutil.rmtree(folder / name, ignore_errors=True)
        # It names the port of the last time.
        remove_kubeconfig(folder / "kubeconfig")
        (folder / _MARK).touch()
        yield folder
