"""What webhooks do to requests: one list, which must hold on the embedded API and on the real kube-apiserver alike.

A case is a function of a ``WebhookCluster``; it sets up webhooks, makes requests and asserts code, message and objects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

import pytest

from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster

Case = Callable[[WebhookCluster], None]
_MODULES = (
    "configurations",
    "matching",
    "conditions",
    "mutating",
    "validating",
    "failures",
    "reviews",
    "services",
    "custom_resources",
    "conversions",
    "subresources",
)


@cache
def cases() -> dict[str, Case]:
    """Name -> case, in the order of the modules and within them of the text."""
    # Cases are not in test modules, and yet their assertions should say what they compared.
    pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _MODULES))
    found: dict[str, Case] = {}
    for name in _MODULES:
        module = import_module(f"{__name__}.{name}")
        for attribute, value in vars(module).items():
            if attribute.startswith("case_"):
                found[attribute.removeprefix("case_").replace("_", "-")] = value
    return found
