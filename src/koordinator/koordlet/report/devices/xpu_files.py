"""The folder in which koord-device-daemon, and agents of vendors, say which accelerators the node has."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Final

from koordinator.api.codec import DecodeError
from koordinator.api.xpu_device_info import XPUDeviceInfo, decode_devices
from koordinator.base.said_once import SaidOnce
from koordinator.node.errors import FileError
from koordinator.node.host import list_folder, read_file

logger = logging.getLogger(__name__)

_MAX_FILES: Final = 64
_MAX_BYTES: Final = 1 << 20


class XPUFiles:
    """Reads all files each time. One that cannot be read counts as it did the time before, once."""

    def __init__(self, folder: str) -> None:
        self._folder = folder.rstrip("/")
        self._before: dict[str, Sequence[XPUDeviceInfo]] = {}
        self._said = SaidOnce(logger)

    def read(self) -> Sequence[XPUDeviceInfo]:
        """The devices of all files, in the order of the names of the files. Names with a dot at the start are of files
        that are being written."""
        try:
            names = [name for name in list_folder(self._folder) if not name.startswith(".")]
        except FileError:
            names = []
        found: dict[str, Sequence[XPUDeviceInfo]] = {}
        kept: dict[str, Sequence[XPUDeviceInfo]] = {}
        paths = {name: f"{self._folder}/{name}" for name in names[:_MAX_FILES]}
        with self._said.round():
            for name, path in paths.items():
                if os.path.isdir(path):
                    continue
                try:
                    found[name] = decode_devices(read_file(path, _MAX_BYTES))
                except (FileError, DecodeError) as error:
                    self._said.say(f"{path} does not say which devices there are: {error}")
                    kept[name] = self._before.get(name, ())
        self._before = found
        by_name = sorted((found | kept).items())
        return [device for _, devices in by_name for device in devices]
