"""What goes wrong with a call, and what a webhook's refusal looks like to the client."""

from __future__ import annotations

import json

from koordinator.base.errors import KoordinatorError
from koordinator.cluster.errors import ApiError, bad_request


class CallError(KoordinatorError):
    """A webhook gave no usable answer; its failure policy says what follows. ``reason`` is for a person."""

    def __init__(self, webhook: str, reason: str) -> None:
        super().__init__(f"failed calling webhook {quoted(webhook)}: {reason}")
        self.reason = reason


def internal_error(message: str) -> ApiError:
    """What every failure inside of the server becomes."""
    cause = {"message": message}
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [cause]})


def dry_run_unsupported(webhook: str) -> ApiError:
    return bad_request(f"admission webhook {quoted(webhook)} does not support dry run")


def timed_out() -> ApiError:
    """The request's own time is over."""
    message = "Timeout: request did not complete within the allotted timeout"
    return ApiError(504, "Timeout", message, {})


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
