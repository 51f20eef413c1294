"""Pods that wait to be scheduled, in pools: active, back-off, unschedulable and gated."""
