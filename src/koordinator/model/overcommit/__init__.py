"""Overcommitment: batch, mid and free capacity from idle resources, ratios, devices, and the health of nodes.

``plan.decide`` makes the plan for one node from a snapshot and keeps the reasons; ``node_diff.diff_plan`` compares it
with the stored objects and returns the patches that are due. Nothing here reads a clock or does I/O.
"""
