"""A webhook server on loopback that does what a test tells it to, path by path, and remembers what it received."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.kube.certificates import Authority

Document = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """A raw response."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    location: str = ""
    retry_after: str = ""


Behaviour = Callable[[Document], Reply]
"""From the AdmissionReview that was sent to the response."""


@dataclass
class WebhookRequest:
    """One question, as it arrived."""

    path: str
    review: Document

    @property
    def request(self) -> Document:
        request: Document = self.review["request"]
        return request


@dataclass
class WebhookServer:
    """``behaviours`` by path; an unknown path answers 404."""

    authority: Authority
    serving: Path
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    requests: list[WebhookRequest] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.serving)
        self.released = threading.Event()
        self._server = _Server(self, context)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def ca_bundle(self) -> str:
        return bundle(self.authority)

    def paths(self) -> list[str]:
        return [requests.path for requests in self.requests]

    def reset(self) -> None:
        self.requests.clear()
        self.behaviours.clear()

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, owner: WebhookServer, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.owner = owner
        self._context = context

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In a thread of the connection's own: a bad handshake disturbs nobody else."""
        try:
            with self._context.wrap_socket(request, server_side=True) as wrapped:
                self.owner.connections += 1
                super().finish_request(wrapped, client_address)
        except OSError:
            return  # the client did not like the certificate, or is gone


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        assert isinstance(self.server, _Server)
        owner = self.server.owner
        path = self.path.partition("?")[0]
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        behaviour = owner.behaviours.get(path)
        # A kind that an earlier case has deleted may be converted once more, when its watch cache ends.
        is_stale = behaviour is None and review.get("kind") == "ConversionReview"
        if not path.startswith("/marker") and not is_stale:
            owner.requests.append(WebhookRequest(path, review))
        reply = behaviour(review) if behaviour else Reply(b"404 page not found", 404, "text/plain")
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        if reply.location:
            self.send_header("Location", reply.location)
        if reply.retry_after:
            self.send_header("Retry-After", reply.retry_after)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Nothing: the test's output is no access log."""


def bundle(authority: Authority) -> str:
    """As ``caBundle`` holds it."""
    return base64.b64encode(authority.pem).decode()


def allow(*warnings: str) -> Behaviour:
    return lambda review: _response(review, {"allowed": True, "warnings": list(warnings)})


def deny(**status: Any) -> Behaviour:
    """Without ``status`` no explanation is given."""
    return lambda review: _response(review, {"allowed": False, **({"status": status} if status else {})})


def patch(*operations: Document, **more: Any) -> Behaviour:
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda review: _response(review, {"allowed": True, "patch": encoded, "patchType": "JSONPatch", **more})


def respond(**response: Any) -> Behaviour:
    return lambda review: _response(review, response)


def envelope(**fields: Any) -> Behaviour:
    """A response that differs from a good one in its outermost fields; None takes a field away."""

    def behave(review: Document) -> Reply:
        good = json.loads(_response(review, {"allowed": True}).body)
        return _json({name: value for name, value in {**good, **fields}.items() if value is not None})

    return behave


def raw(body: str, status: int = 200, content_type: str = "application/json", location: str = "") -> Behaviour:
    return lambda review: Reply(body.encode(), status, content_type, location)


def label(name: str, value: str = "yes") -> Behaviour:
    """Sets a label, whether the object has others or not; in the old form of a merge by hand."""

    def behave(review: Document) -> Reply:
        labels = {**(review["request"]["object"]["metadata"].get("labels") or {}), name: value}
        return patch({"op": "add", "path": "/metadata/labels", "value": labels})(review)

    return behave


def _response(review: Document, response: Document) -> Reply:
    version, kind = review["apiVersion"], review["kind"]
    return _json({"apiVersion": version, "kind": kind, "response": {"uid": review["request"]["uid"], **response}})


def _json(document: Document) -> Reply:
    return Reply(json.dumps(document).encode())
