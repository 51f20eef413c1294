"""Write the corpus anew: ``python -m tests.cluster.record KUBECONFIG`` of an empty kube-apiserver.

That is ``strategy/objects.json``, ``strategy/invalid.json`` and ``patch/patches.json``. The conversations, the requests
and the schemas beside them have recorders of their own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from koordinator.api.document import Document
from tests.cluster.admission_webhooks.api_server import ApiServer
from tests.cluster.corpus import MEDIA_TYPES, NAMESPACE, in_namespace, resource_of, written

_HERE: Final = Path(__file__).parent
_DRY_RUN: Final = "?dryRun=All"
_OF_REFUSALS: Final = ("code", "details", "message", "reason")


class Recorder:
    """Asks one API server, and leaves there the objects that are patched."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = ApiServer(kubeconfig)

    def record(self) -> None:
        self._api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        _write("strategy/objects.json", [self._created(each) for each in written("strategy/objects.yaml")])
        refusals = [self._created(each) for each in written("strategy/invalid.yaml")]
        _write("strategy/invalid.json", [{key: each.get(key) for key in _OF_REFUSALS} for each in refusals])
        (patches,) = written("patch/patches.yaml")
        objects = {name: self._created(each, dry_run=False) for name, each in patches["objects"].items()}
        results = [self._patched(objects[case["object"]], case) for case in patches["patches"]]
        _write("patch/patches.json", {"objects": objects, "results": results})

    def _created(self, document: Document, *, dry_run: bool = True) -> Document:
        path = _path({"metadata": {}, **in_namespace(document)}, named=False)
        query = f"{_DRY_RUN}&fieldValidation=Ignore" if dry_run else ""
        return _plain(self._api.request("POST", f"{path}{query}", document).body)

    def _patched(self, old: Document, case: Document) -> Document:
        path = f"{_path(old)}/{case['sub']}" if "sub" in case else _path(old)
        response = self._api.request("PATCH", f"{path}{_DRY_RUN}", case["patch"], media=MEDIA_TYPES[case["type"]])
        return _plain(response.body)


def _plain(response: Document) -> Document:
    """Without what is nobody's business but the server's."""
    response.get("metadata", {}).pop("managedFields", None)
    return response


def _path(document: Document, *, named: bool = True) -> str:
    resource = resource_of(document)
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    scope = f"/namespaces/{NAMESPACE}" if resource.namespaced else ""
    name = f"/{document['metadata']['name']}" if named else ""
    return f"{root}{scope}/{resource.plural}{name}"


def _write(name: str, found: Any) -> None:
    (_HERE / name).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    Recorder(Path(sys.argv[1])).record()
