"""admissionregistration.k8s.io/v1: the configurations by which an API server knows which webhooks to call.

The entries stay plain documents: a client that rewrites one must keep every field of it, known here or not.
"""

from __future__ import annotations

from koordinator.api.meta import FreeForm, Object


class WebhookConfiguration(Object):
    """MutatingWebhookConfiguration or ValidatingWebhookConfiguration."""

    webhooks: list[FreeForm] = []
