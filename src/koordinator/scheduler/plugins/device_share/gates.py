"""The feature gates that change how devices are allocated. They are separate for the command line, which loads no
plugin."""

from __future__ import annotations

from typing import Final

RESIZE_POD: Final = "ResizePod"
"""A Reservation holds the devices that it was allocated, not those that its template requests."""
DEVICE_PLUGIN_ADAPTION: Final = "DevicePluginAdaption"
"""Annotate pods and nodes for the device plugins of some vendors."""
GATES: Final = (RESIZE_POD, DEVICE_PLUGIN_ADAPTION)
