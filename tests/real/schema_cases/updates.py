"""Lists with keys, what was wrong before, and the status."""

from __future__ import annotations

from tests.real.schema_cases.building import (
    NUMBER,
    TEXT,
    WITH_STATUS,
    Request,
    Talk,
    items,
    make,
    mapped,
    merge,
    obj,
    refuse,
    show,
    spec,
)

_KEYED = items(
    {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": TEXT,
            "port": {"type": "integer", "default": 80},
            "value": {"type": "string", "maxLength": 3},
        },
    },
    **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"]},
)
LISTS = [
    Talk(
        "lists",
        spec(
            names=items(TEXT, **{"x-kubernetes-list-type": "set"}),
            numbers=items(NUMBER, **{"x-kubernetes-list-type": "set"}),
            keyed=_KEYED,
            single=items(
                {"type": "object", "required": ["id"], "properties": {"id": NUMBER}},
                **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
            ),
        ),
        [
            make("a", spec={"names": ["a", "b"], "keyed": [{"name": "a"}, {"name": "a", "port": 81}]}),
            refuse(names=["a", "b", "a", "a"]),
            refuse(numbers=[1, 2, 1, 2]),
            refuse(keyed=[{"name": "a"}, {"name": "b"}, {"name": "a", "port": 80}]),
            refuse(single=[{"id": 1}, {"id": 1}, {"id": 1}]),
            refuse(keyed=["a", "a"]),
            merge("a", spec={"names": ["x", "x"]}),
        ],
    ),
]

RATCHETING = [
    Talk(
        "ratcheting",
        spec(
            a=TEXT,
            b=TEXT,
            list=items(obj(v=TEXT)),
            keyed=_KEYED,
            map=mapped(TEXT),
            set=items(TEXT),
            deep=obj(x=TEXT, y=TEXT),
        ),
        [
            make(
                "a",
                spec={
                    "a": "long",
                    "b": "b",
                    "list": [{"v": "long"}, {"v": "ok"}],
                    "keyed": [{"name": "n", "value": "abc"}, {"name": "m", "value": "x"}],
                    "map": {"k": "long"},
                    "set": ["a", "a"],
                    "deep": {"x": "long"},
                },
            ),
            Request(
                "DEFINE",
                body=obj(
                    spec={
                        "type": "object",
                        "required": ["c"],
                        "properties": {
                            "a": {"type": "string", "maxLength": 1},
                            "b": TEXT,
                            "c": TEXT,
                            "list": items(obj(v={"type": "string", "maxLength": 2})),
                            "keyed": items(
                                {
                                    "type": "object",
                                    "required": ["name"],
                                    "properties": {
                                        "name": TEXT,
                                        "port": {"type": "integer", "default": 80},
                                        "value": {"type": "string", "maxLength": 1},
                                    },
                                },
                                **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"]},
                            ),
                            "map": mapped({"type": "string", "maxLength": 1}),
                            "set": items(TEXT, **{"x-kubernetes-list-type": "set"}),
                            "deep": {**obj(x=TEXT, y=TEXT), "allOf": [{"properties": {"x": {"maxLength": 1}}}]},
                        },
                    }
                ),
            ),
            show("a"),
            merge("a", metadata={"labels": {"a": "b"}}),
            merge("a", spec={"b": "c"}),
            merge("a", spec={"b": "c", "c": "d"}),
            merge("a", spec={"a": "longer"}),
            merge("a", spec={"list": [{"v": "long"}, {"v": "no"}]}),
            merge("a", spec={"keyed": [{"name": "m", "value": "y"}, {"name": "n", "port": 80, "value": "abc"}]}),
            merge("a", spec={"keyed": [{"name": "m", "value": "yy"}, {"name": "n", "port": 80, "value": "abc"}]}),
            merge("a", spec={"map": {"j": "x"}}),
            merge("a", spec={"map": {"j": "xy"}}),
            merge("a", spec={"set": ["b", "b"]}),
            merge("a", spec={"deep": {"y": "z"}}),
            merge("a", spec={"set": ["b"]}),
            merge("a", spec={"set": ["b", "b"]}),
        ],
    ),
]

STATUS = [
    Talk(
        "status",
        {
            "type": "object",
            "required": ["spec"],
            "properties": {
                "spec": obj(a=NUMBER),
                "status": {
                    "type": "object",
                    "required": ["phase"],
                    "properties": {
                        "phase": {"type": "string", "enum": ["Ready", "Pending"]},
                        "count": {"type": "integer", "default": 1, "maximum": 9},
                        "list": items(TEXT, **{"x-kubernetes-list-type": "set"}),
                    },
                },
            },
        },
        [
            make("a", spec={"a": 1}, status={"phase": "Unheard", "count": 100}),
            make("b", spec={}, status={"x": 1}),
            merge("a", spec={"a": 2}, status={"phase": "Ready"}),
            merge("a/status", spec={"a": 3}, status={"phase": "Ready"}, metadata={"labels": {"a": "b"}}),
            merge("a/status", status={"phase": "Other"}),
            merge("a/status", status={"count": "x", "phase": 5}),
            merge("a/status", status={"count": 10}),
            merge("a/status", status={"phase": None}),
            merge("a/status", status={"list": ["a", "a"]}),
            merge("a/status", status={"y": 1}),
            merge("a/status?fieldValidation=Strict", status={"y": 1}),
            merge("a/status", status="x"),
            merge("a/status", status=None),
            Request(
                "PUT",
                "/a/status",
                {"metadata": {"name": "a", "resourceVersion": "$"}, "status": {"phase": "Ready", "z": 1}},
            ),
            Request("PUT", "/a", {"metadata": {"name": "a", "resourceVersion": "$"}, "status": {"phase": "Pending"}}),
            Request("PUT", "/a", {"metadata": {"name": "a", "resourceVersion": "$"}, "spec": {"a": 3}, "x": 1}),
            Request("GET", "/a/status"),
            merge("a", metadata={"annotations": {"a": "b"}}),
        ],
        WITH_STATUS,
    ),
    Talk(
        "no-status",
        obj(spec=obj(a=NUMBER), status=obj(phase={"type": "string", "enum": ["Ready"]})),
        [
            make("a", status={"phase": "Ready"}),
            merge("a", status={"phase": "Other"}),
            merge("a", status={"phase": None}),
            merge("a", spec={"a": 1}),
        ],
    ),
]
