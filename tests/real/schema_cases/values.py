"""What a value may be: types, bounds, texts, sizes, required fields and junctors."""

from __future__ import annotations

from tests.real.schema_cases.building import (
    ANY,
    FLAG,
    FLOAT,
    INT_OR_STRING,
    NUMBER,
    TEXT,
    Talk,
    items,
    make,
    mapped,
    obj,
    refuse,
    spec,
)

VALUES = [
    Talk(
        "types",
        spec(
            text=TEXT, number=NUMBER, float=FLOAT, flag=FLAG, list=items(NUMBER), map=mapped(TEXT), either=INT_OR_STRING
        ),
        [
            refuse(text="a", number=1, float=1.5, flag=True, list=[1], map={"a": "b"}, either="1"),
            refuse(text=1, number="1", float="1", flag="x", list={}, map=[], either=True),
            refuse(number=1.5, float=2, either=2.5),
            refuse(number=2.0, either={}),
            refuse(text=True, number=True, flag=1),
            refuse(text=[], number={}, flag=None),
            refuse(list=["a", 1, None], map={"a": 1, "b": None, "c d": {}}),
            refuse(text={"a": 1}),
            make("a", "?dryRun=All", spec=[]),
            make("a", "?dryRun=All", spec="a"),
        ],
    ),
    Talk(
        "bounds",
        spec(
            least={"type": "integer", "minimum": 2},
            most={"type": "integer", "maximum": 5},
            above={"type": "integer", "minimum": 2, "exclusiveMinimum": True},
            below={"type": "number", "maximum": 5.5, "exclusiveMaximum": True},
            half={"type": "number", "minimum": 0.5, "maximum": 1e15},
            step={"type": "integer", "multipleOf": 3},
            fraction={"type": "number", "multipleOf": 0.1},
            cut={"type": "integer", "maximum": 2.5},
        ),
        [
            refuse(least=2, most=5, above=3, below=5.4, half=0.5, step=9, fraction=0.3, cut=2),
            refuse(least=1),
            refuse(most=6),
            refuse(above=2),
            refuse(below=5.5),
            refuse(below=6),
            refuse(half=0.25),
            refuse(half=1e16),
            refuse(half=0),
            refuse(step=4),
            refuse(fraction=0.25),
            refuse(fraction=3),
            refuse(cut=3),
            refuse(least=-1, most=100, above=0, step=-4),
        ],
    ),
    Talk(
        "texts",
        spec(
            short={"type": "string", "maxLength": 3},
            one={"type": "string", "maxLength": 1},
            long={"type": "string", "minLength": 2},
            shaped={"type": "string", "pattern": "^[a-z]+$"},
            digits={"type": "string", "pattern": r"\d{2}"},
            chosen={"type": "string", "enum": ["a", "b c", 'd"e']},
            both={"type": "string", "maxLength": 3, "pattern": "^a"},
        ),
        [
            refuse(short="äöü", long="äö", shaped="abc", digits="x42y", chosen="b c"),
            refuse(short="abcd"),
            refuse(one="ab"),
            refuse(long="a"),
            refuse(long=""),
            refuse(shaped="aB"),
            refuse(shaped="a\n"),
            refuse(digits="٤٢"),
            refuse(chosen="c"),
            refuse(chosen=""),
            refuse(both="bcdef"),
        ],
    ),
    Talk(
        "enums",
        spec(
            number={"type": "integer", "enum": [1, 2]},
            float={"type": "number", "enum": [1, 2.5]},
            any={**ANY, "enum": [{"a": 1}, [1], "x", None]},
            maybe={"type": "string", "nullable": True, "enum": ["a"]},
            null={"type": "string", "nullable": True, "enum": ["a", None]},
        ),
        [
            refuse(number=1, float=2.5, any={"a": 1}),
            refuse(number=3),
            refuse(float=1.7),
            refuse(float=3.5),
            refuse(any={"a": 2}),
            refuse(maybe=None),
            refuse(null=None),
        ],
    ),
    Talk(
        "sizes",
        spec(
            few=items(TEXT, maxItems=2),
            some=items(TEXT, minItems=1),
            little={**mapped(TEXT), "maxProperties": 1},
            much={**mapped(TEXT), "minProperties": 2},
        ),
        [
            refuse(few=["a", "b"], some=["a"], little={"a": "b"}, much={"a": "b", "c": "d"}),
            refuse(few=["a", "b", "c"]),
            refuse(some=[]),
            refuse(little={"a": "b", "c": "d"}),
            refuse(much={"a": "b"}),
        ],
    ),
    Talk(
        "required",
        {
            "type": "object",
            "required": ["spec"],
            "properties": {
                "spec": {
                    "type": "object",
                    "required": ["name", "list"],
                    "properties": {
                        "name": TEXT,
                        "list": items({"type": "object", "required": ["a"], "properties": {"a": TEXT}}),
                        "map": mapped({"type": "object", "required": ["a"], "properties": {"a": TEXT}}),
                    },
                }
            },
        },
        [
            make("a", "?dryRun=All"),
            refuse(),
            refuse(name="a", list=[{}]),
            refuse(name="a", list=[{"a": "b"}, {"b": "c"}], map={"x": {}, "y.z": {}}),
            refuse(name=None, list=None),
            refuse(name="a", list=[]),
        ],
    ),
    Talk(
        "junctors",
        spec(
            any={
                "type": "object",
                "properties": {"a": TEXT, "b": NUMBER},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            one={
                "type": "object",
                "properties": {"a": TEXT, "b": NUMBER},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            all={"type": "integer", "allOf": [{"minimum": 2}, {"maximum": 4}]},
            none={"type": "string", "not": {"enum": ["a"]}},
            deep={
                **obj(kind=TEXT, size=NUMBER),
                "anyOf": [
                    {"properties": {"kind": {"enum": ["small"]}, "size": {"maximum": 3}}},
                    {"properties": {"kind": {"enum": ["large"]}, "size": {"minimum": 10}}, "required": ["size"]},
                ],
            },
            quantity={**INT_OR_STRING, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+m?$"},
        ),
        [
            refuse(any={"a": "x", "b": 1}, one={"b": 1}, all=3, none="b", deep={"kind": "small", "size": 1}),
            refuse(any={}),
            refuse(one={}),
            refuse(one={"a": "x", "b": 1}),
            refuse(all=1),
            refuse(all=5),
            refuse(none="a"),
            refuse(deep={"kind": "small", "size": 5}),
            refuse(deep={"kind": "large"}),
            refuse(deep={"kind": "other", "size": 5}),
            refuse(quantity=5),
            refuse(quantity="5m"),
            refuse(quantity="x"),
            refuse(quantity=True),
            refuse(quantity=1.5),
        ],
    ),
]
