"""Fields that come and go: pruning, defaults, embedded objects."""

from __future__ import annotations

from tests.real.schema_cases.building import (
    ANY,
    ANY_OBJECT,
    EMBEDDED,
    JSON_PATCH,
    NUMBER,
    TEXT,
    Request,
    Talk,
    items,
    make,
    mapped,
    merge,
    obj,
    show,
    spec,
)

PRUNING = [
    Talk(
        "pruning",
        obj(
            spec=obj(
                known=obj(a=TEXT),
                list=items(obj(a=TEXT)),
                map=mapped(obj(a=TEXT)),
                free=mapped(True),
                any=ANY,
                kept={**ANY_OBJECT, "properties": {"known": obj(a=TEXT)}},
                kept_list={**ANY, "type": "array", "items": obj(a=TEXT)},
                scalar=TEXT,
            )
        ),
        [
            make("a", spec={"known": {"a": "b", "x": 1}, "list": [{"a": "b", "x": {"y": 1}}, {}], "y": {"z": 1}}),
            make("b", spec={"map": {"k": {"a": "b", "x": 1}, "l.m": {"x": 1}}}, other=1),
            make("c", spec={"free": {"a": {"b": 1}, "c": [{"d": 1}], "e": 5}}),
            make("d", spec={"any": {"a": {"b": None}}, "kept": {"x": {"y": 1}, "known": {"a": "b", "x": 1}}}),
            make("e", spec={"kept_list": [{"a": "b", "x": 1}]}),
            make("f", "?fieldValidation=Strict", spec={"known": {"x": 1}, "b": 1, "list": [{}, {"x": 1}]}, z=1),
            make("f", "?fieldValidation=Ignore", spec={"known": {"x": 1}}),
            make("g", "?fieldValidation=Loud", spec={}),
            make("h", spec={"scalar": {"x": 1}}),
            make("i", "?fieldValidation=Strict", meta={"label": {}, "ownerReferences": []}, spec={}),
            Request("PUT", "/f", {"metadata": {"name": "f", "resourceVersion": "$"}, "spec": {"x": 1}}),
            Request(
                "PUT",
                "/f?fieldValidation=Strict",
                {"metadata": {"name": "f", "resourceVersion": "$"}, "spec": {"x": 1}},
            ),
            merge("a", spec={"known": {"y": 1}}),
            merge("a?fieldValidation=Strict", spec={"known": {"y": 1}}),
            merge("a?fieldValidation=Strict", spec={"known": {"a": "c"}}),
            Request("PATCH", "/a?fieldValidation=Strict", [{"op": "add", "path": "/x", "value": 1}], JSON_PATCH),
            show("a"),
            show("d"),
        ],
    ),
    Talk(
        "root-kept",
        {**ANY_OBJECT, "properties": {"spec": obj(a=TEXT)}},
        [make("a", other={"x": {"y": None}}, spec={"a": "b", "c": 1}), show("a")],
    ),
    Talk(
        "narrowing",
        spec(a=TEXT, b=TEXT, c=obj(d=TEXT)),
        [
            make("a", spec={"a": "1", "b": "2", "c": {"d": "3"}}),
            Request("DEFINE", body=spec(a=TEXT, c=obj(e={"type": "string", "default": "4"}))),
            show("a"),
            Request("GET", "?fieldSelector=metadata.name%3Da"),
            merge("a", spec={"b": "3"}),
            Request("DEFINE", body=spec(a=NUMBER, b=TEXT)),
            show("a"),
            merge("a", metadata={"labels": {"x": "y"}}),
            merge("a", spec={"b": "3"}),
            merge("a", spec={"a": "2"}),
            merge("a", spec={"a": 2}),
        ],
    ),
]

DEFAULTS = [
    Talk(
        "defaults",
        spec(
            text={"type": "string", "default": "x"},
            flag={"type": "boolean", "default": False},
            number={"type": "integer", "default": 0},
            nested={"type": "object", "default": {}, "properties": {"a": {"type": "integer", "default": 5}}},
            filled={
                "type": "object",
                "default": {"a": 1},
                "properties": {"a": NUMBER, "b": {"type": "integer", "default": 2}},
            },
            list=items(obj(a={"type": "string", "default": "y"})),
            map=mapped(obj(a={"type": "string", "default": "z"})),
            nullable={"type": "string", "nullable": True, "default": "n"},
            plain=TEXT,
            maybe={"type": "string", "nullable": True},
        ),
        [
            make("a"),
            make("b", spec={}),
            make(
                "c", spec={"text": None, "flag": None, "nested": None, "plain": None, "maybe": None, "nullable": None}
            ),
            make("d", spec={"list": [{}, {"a": "b"}, {"a": None}], "map": {"k": {}, "l": {"a": None}}}),
            make("e", spec={"list": [None], "map": {"k": None}}),
            make("f", spec={"nested": {"a": 1}, "filled": {}}),
            merge("b", spec={"text": None, "number": 7}),
            merge("b", metadata={"annotations": {"a": "b"}}),
            show("c"),
            show("e"),
        ],
    ),
    Talk(
        "root-defaults",
        obj(
            spec={"type": "object", "default": {"a": "b"}, "properties": {"a": TEXT}},
            size={"type": "integer", "default": 1},
        ),
        [make("a"), make("b", spec=None, size=None), merge("b", size=2), show("b")],
    ),
]

EMBEDDED_OBJECTS = [
    Talk(
        "embedded",
        spec(
            whole=EMBEDDED,
            typed={
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "properties": {"spec": obj(a=TEXT), "metadata": {"type": "object"}},
            },
            list=items(EMBEDDED),
        ),
        [
            make(
                "a",
                spec={
                    "whole": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "x": 1}, "spec": {"y": 1}}
                },
            ),
            make(
                "b",
                spec={
                    "typed": {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "metadata": {"labels": {"a": "b"}},
                        "spec": {"a": "b", "y": 1},
                    }
                },
            ),
            make("c", spec={"whole": {"metadata": {}}}),
            make("d", spec={"whole": {"apiVersion": 1, "kind": "Pod"}}),
            make("d", spec={"whole": {"apiVersion": "", "kind": ""}}),
            make("d", spec={"whole": {"apiVersion": "a/b/c", "kind": "po_d"}}),
            make("d", spec={"whole": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}}}),
            make("d", spec={"whole": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a b": "c"}}}}),
            make(
                "d", spec={"whole": {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "A", "name": "a/b"}}}
            ),
            make("e", spec={"list": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"creationTimestamp": None}}]}),
            make(
                "f",
                "?fieldValidation=Strict",
                spec={"list": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"x": 1}}]},
            ),
            make("g", meta={"labels": {"a": 1}}),
            make("g", meta={"annotations": ["a"]}),
            make("g", "?dryRun=All", meta={"finalizers": ["x"]}),
            make("h", "?dryRun=All", meta={"finalizers": ["a.b"]}),
            merge("a", metadata={"labels": {"a": 1}}),
            show("a"),
        ],
    ),
]
