"""What a case is made of: schemas in few words, objects and requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from koordinator.api.document import Document

GROUP = "schemas.example.com"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@dataclass(frozen=True)
class Request:
    """``method`` as HTTP has it, or DEFINE: the schema of the definition becomes ``body``."""

    method: str
    path: str = ""
    """Below the collection: ``/NAME``, ``/NAME/status``, with a query."""
    body: Any = None
    media: str = ""


@dataclass(frozen=True)
class Talk:
    name: str
    schema: Document
    requests: list[Request]
    version: Document = field(default_factory=dict)
    """More of the served version, such as subresources."""

    @property
    def plural(self) -> str:
        return self.name.replace("-", "")


def obj(**fields: Any) -> Document:
    """For the schema of one field: an object of type object."""
    return {"type": "object", "properties": fields}


def items(of: Document, **more: Any) -> Document:
    return {"type": "array", "items": of, **more}


def mapped(of: Any) -> Document:
    return {"type": "object", "additionalProperties": of}


TEXT: Document = {"type": "string"}
NUMBER: Document = {"type": "integer"}
FLOAT: Document = {"type": "number"}
FLAG: Document = {"type": "boolean"}
ANY: Document = {"x-kubernetes-preserve-unknown-fields": True}
ANY_OBJECT: Document = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
INT_OR_STRING: Document = {"x-kubernetes-int-or-string": True}
EMBEDDED: Document = {**ANY_OBJECT, "x-kubernetes-embedded-resource": True}


def spec(**fields: Any) -> Document:
    """A whole schema with these fields of spec."""
    return obj(spec=obj(**fields))


def make(name: str, query: str = "", *, meta: Document | None = None, **fields: Any) -> Request:
    return Request("POST", query, {"metadata": {"name": name, **(meta or {})}, **fields})


def refuse(**values: Any) -> Request:
    """A creation with these values in spec; most are refused."""
    return make("a", "?dryRun=All", spec=values)


def show(name: str) -> Request:
    return Request("GET", f"/{name}")


def merge(path: str, **fields: Any) -> Request:
    return Request("PATCH", f"/{path}", fields, MERGE)


WITH_STATUS: Document = {"subresources": {"status": {}}}
