"""koord-device-daemon: finds accelerators with the tools of their vendors and writes them to a file for koordlet."""
