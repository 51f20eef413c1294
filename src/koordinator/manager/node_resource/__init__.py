"""Nodes offer what their pods leave idle: batch and mid resources, devices, and what a core is worth."""
