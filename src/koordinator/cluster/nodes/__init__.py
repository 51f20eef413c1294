"""Simulated nodes: registered, kept alive and loaded through the public API alone, as kubelets and koordlets would.

Nothing here knows of the embedded API: the same nodes work on a real API server. ``fleet`` is the entry for callers in
this process, ``main`` the program.
"""
