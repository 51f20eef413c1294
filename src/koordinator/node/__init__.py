"""All I/O with one machine: its kernel, its container runtime, its kubelet and its devices.

Each module knows one surface, below a root folder that is handed in. What a kernel lacks is a value (``Unavailable``)
with a reason, never an exit.
"""
