"""One webhook: a body in, a response out, whatever happens in between.

A handler that fails costs its request and nothing else: the error becomes the code that the original returns.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from koordinator.api.codec import DecodeError
from koordinator.api.kinds import ELASTIC_QUOTAS, Kind
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.manager.webhook.admission import (
    AdmissionHandler,
    AdmissionRequest,
    AdmissionResponse,
    CommittingHandler,
)
from koordinator.manager.webhook.colocation_profile.changes import UnknownObjectError
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.missing_objects import MissingObjects
from koordinator.manager.webhook.review import Review, ReviewError, decode_review, encode_response

logger = logging.getLogger(__name__)

_BAD_REQUEST: Final = 400
_SERVER_ERROR: Final = 500


class Webhook:
    """Responds to the AdmissionReviews that arrive at one handler's path."""

    def __init__(
        self, handler: AdmissionHandler, metrics: WebhookMetrics, clock: Clock, missing: MissingObjects | None = None
    ) -> None:
        """``missing`` reads what the handler needs and does not know; without it such a request is refused."""
        self.path = handler.path
        self._handler = handler
        self._committing = handler if isinstance(handler, CommittingHandler) else None
        self._mutates = handler.path.startswith("/mutate")
        self._clock = clock
        self._missing = missing
        self._metrics = metrics
        self._latency = metrics.latency.labels(handler.path)
        self._ok_requests = metrics.requests.labels(handler.path, "200")

    async def respond(self, body: bytes) -> bytes:
        """The AdmissionReview with the response to the one in ``body``, once what the handler has to write down is
        written; never raises."""
        started = self._clock.monotonic()
        try:
            review = decode_review(body)
            try:
                response = await self._handle(review.request)
                return encode_response(response, review.request, review.api_version)
            except Exception as error:
                return self._failed(error, review)
        except ReviewError as error:
            return self._unreadable(error)
        finally:
            self._ok_requests.inc()
            self._latency.observe(self._clock.monotonic() - started)

    async def _handle(self, request: AdmissionRequest) -> AdmissionResponse:
        response = await self._known(request)
        if self._committing is not None and response.allowed:
            await self._committing.commit(request)
        return response

    async def _known(self, request: AdmissionRequest) -> AdmissionResponse:
        """The handler's response; what it does not know is read, each object once."""
        read: set[tuple[Kind[Any], str]] = set()
        while True:
            try:
                return self._handler.handle(request)
            except UnknownObjectError as error:
                wanted = error.kind, error.name
                if self._missing is None or wanted in read or not await self._missing.read(*wanted):
                    raise
                read.add(wanted)

    def _unreadable(self, error: ReviewError) -> bytes:
        logger.warning("%s: a request that cannot be read: %s", self.path, error)
        return encode_response(_refusal(_BAD_REQUEST, str(error)), None)

    def _failed(self, error: Exception, review: Review) -> bytes:
        if isinstance(error, KoordinatorError):
            response = _refusal(self._code(error, review.request), str(error))
            logger.info("%s: %s refused: %s", self.path, _subject(review.request), error)
        else:
            response = self._panicked(error, review)
        return encode_response(response, review.request, review.api_version)

    def _panicked(self, error: Exception, review: Review) -> AdmissionResponse:
        self._metrics.panics.labels().inc()
        logger.exception("%s: the handler failed on %s", self.path, _subject(review.request))
        return _refusal(_SERVER_ERROR, f"panic: {type(error).__name__}: {error} [recovered]")

    def _code(self, error: KoordinatorError, request: AdmissionRequest) -> int:
        if isinstance(error, DecodeError) or not self._mutates or request.resource == ELASTIC_QUOTAS.plural:
            return _BAD_REQUEST
        return _SERVER_ERROR


def _refusal(code: int, message: str) -> AdmissionResponse:
    return AdmissionResponse(allowed=False, code=code, message=message)


def _subject(request: AdmissionRequest) -> str:
    resource = f"{request.resource}/{request.sub_resource}" if request.sub_resource else request.resource
    where = f"{request.namespace}/{request.name}" if request.namespace else request.name
    return f"{request.operation} {resource} {where}"
