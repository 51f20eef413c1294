"""admissionregistration.k8s.io/v1: the configurations that tell an API server which webhooks to ask.

The entries stay plain documents: whoever rewrites one must give back every field of it, known here or not.
"""

from __future__ import annotations

from koordinator.api.meta import FreeForm, Object


class WebhookConfiguration(Object):
    """MutatingWebhookConfiguration or ValidatingWebhookConfiguration."""

    webhooks: list[FreeForm] = []
