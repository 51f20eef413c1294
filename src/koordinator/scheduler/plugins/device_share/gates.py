"""The feature gates that change how devices are allocated. They are separate for the command line, which loads no
plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RESIZE_POD: Final = "ResizePod"
DEVICE_PLUGIN_ADAPTION: Final = "DevicePluginAdaption"
GATES: Final[Mapping[str, str]] = {
    RESIZE_POD: "a Reservation holds the devices that it was allocated, not those that its template requests",
    DEVICE_PLUGIN_ADAPTION: "pods and nodes are annotated for the device plugins of some vendors",
}
"""Name -> what it does."""
