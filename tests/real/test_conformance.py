"""Kubernetes' own conformance tests have the same outcome on the embedded API as on kube-apiserver without nodes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.real.conformance.suite import outcomes, suite
from tests.real.kubectl.two_clusters import two_control_planes
from tests.real.programs import RealPrograms

_NEEDS_PODS_THAT_RUN: Final = (
    "AdmissionWebhook", "ConversionWebhook", "Aggregator ", "all pods are removed", "Job .*run", "should serve",
)  # fmt: skip
