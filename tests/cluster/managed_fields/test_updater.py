"""The cases that structured-merge-diff tests its merging with, as sequences of writes and what comes of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.document import Document, copied
from koordinator.cluster.managed_fields.applied import apply, conflicting_paths
from koordinator.cluster.managed_fields.elements import path_text
from koordinator.cluster.managed_fields.field_set import encoded, of_fields, union
from koordinator.cluster.managed_fields.managers import (
    APPLY,
    UPDATE,
    Conflicts,
    Identity,
    Managers,
    Owned,
    Updater,
)
from koordinator.cluster.managed_fields.schema import Atom, TypedError, of_definition
from koordinator.cluster.managed_fields.typed import check
from tests.yaml_documents import yaml_documents

_CASES: Mapping[str, Any] = yaml_documents((Path(__file__).parent / "cases.yaml").read_text())[0]
_NAMES = of_fields("apiVersion", "kind", "metadata")


class _Versions:
    """Versions that differ in nothing but their schemas."""

    def __init__(self, schemas: Mapping[str, Document | None]) -> None:
        self._atoms = {name: of_definition(schema, preserves_unknown=False) for name, schema in schemas.items()}

    def atom(self, api_version: str) -> Atom | None:
        return self._atoms.get(api_version)

    def convert(self, obj: Document, api_version: str) -> Document | None:
        return {**obj, "apiVersion": api_version} if api_version in self._atoms else None


class _Object:
    """What several writers make of one object."""

    def __init__(self, schemas: Mapping[str, Document | None]) -> None:
        self._versions = _Versions(schemas)
        self.live: Document = {"apiVersion": next(iter(schemas))}
        self.managers: Managers = {}

    def write(self, step: Document) -> None:
        """``apply``, ``force`` or ``update`` names the writer; ``schemas`` are new ones."""
        if "schemas" in step:
            self._versions = _Versions(step["schemas"])
            self.live["apiVersion"] = next(iter(step["schemas"]))
            return
        (kind, manager), version = next(iter(step.items())), step.get("version") or self.live["apiVersion"]
        updater = Updater(self._versions, version, _NAMES)
        live = self._versions.convert(self.live, version)
        assert live is not None
        new = {"apiVersion": version, **copied(step["object"])}
        if kind == "update":
            who = Identity(manager, UPDATE, version)
            left, changed = updater.update(live, new, updater.reconciled(self.managers), who)
            changed = union(left[who].fields if who in left else {}, updater.owned(changed))
            self.managers = {**left, **({who: Owned(changed, version)} if changed else {})}
            self.live = new
            return
        atom = self._versions.atom(version)
        assert atom is not None
        check(atom, new)
        merged, self.managers = apply(
            updater, live, new, self.managers, Identity(manager, APPLY), force=kind == "force"
        )
        self.live = live if merged is None else merged

    def shown(self) -> Document:
        return {
            "object": {name: value for name, value in self.live.items() if name != "apiVersion"},
            "managers": {who.manager: encoded(owned.fields) for who, owned in self.managers.items()},
        }


@pytest.mark.parametrize("name", _CASES)
def test_case(name: str) -> None:
    case = _CASES[name]
    schemas = case.get("schemas") or {"v1": {"type": "object", **(case.get("schema") or {})}}
    obj = _Object(schemas)
    for step in case["steps"]:
        if "conflicts" in step:
            with pytest.raises(Conflicts) as refused:
                obj.write(step)
            found = [f"{who.manager}{path_text(path)}" for who, path in conflicting_paths(refused.value)]
            assert found == step["conflicts"]
        elif "refused" in step:
            with pytest.raises(TypedError) as malformed:
                obj.write(step)
            assert str(malformed.value) == step["refused"]
        else:
            obj.write(step)
    assert obj.shown() == {"object": case["object"], "managers": case["managers"]}
