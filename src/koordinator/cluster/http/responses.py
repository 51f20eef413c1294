"""Answers that are not objects: statuses, documents, plain text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from aiohttp import web

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.encoding import decode

_encode = msgspec.json.Encoder().encode

_LONGEST_IN_ALL: Final = 4096
"""Characters; when the texts come to more, each is cut."""
_LONGEST_CUT: Final = 256


def json_response(body: bytes, status: int = 200, warnings: Iterable[str] = ()) -> web.Response:
    """``warnings`` become Warning headers, which kubectl prints."""
    response = web.Response(body=body, status=status, content_type="application/json")
    if warnings:
        for header in warning_headers(warnings):
            response.headers.add("Warning", header)
    return response


def document_response(document: Any, status: int = 200) -> web.Response:
    return json_response(_encode(document), status)


def failure(error: ApiError) -> web.Response:
    response = json_response(_encode(error.status()), error.code, error.warnings)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def success(details: Document | None = None, status: int = 200, warnings: Iterable[str] = ()) -> web.Response:
    body: Document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = details
    if status != 200:
        body["code"] = status
    return json_response(_encode(body), status, warnings)


def deleted_details(resource: Resource, stored: Stored) -> Document:
    """What kubectl waits for after a deletion: the uid that must be gone."""
    metadata = decode(resource, stored)["metadata"]
    details: Document = {"name": metadata["name"], "kind": resource.plural, "uid": metadata["uid"]}
    return {**details, "group": resource.group} if resource.group else details


def warning_headers(texts: Iterable[str]) -> list[str]:
    """The values of the headers: each text once, without those that come after there is no more room."""
    unique = dict.fromkeys(map(_printable, texts))
    unique.pop("", None)
    if sum(map(len, unique)) <= _LONGEST_IN_ALL:
        return [_header(text) for text in unique]
    headers, written = [], 0
    for text in unique:
        if written >= _LONGEST_IN_ALL:
            break
        cut = text[:_LONGEST_CUT]
        written += len(cut)
        headers.append(_header(cut))
    return headers


def _printable(text: str) -> str:
    """A header ends with its line, and control characters would be at home in a terminal."""
    if text.isprintable():
        return text
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown.strip()


def _header(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'
