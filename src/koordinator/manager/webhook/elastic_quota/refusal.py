"""Why a quota, or a pod of one, is refused."""

from __future__ import annotations

from koordinator.base.errors import KoordinatorError


class QuotaRefused(KoordinatorError):
    """The text names the quota and what stands against it, in the words of the original."""
