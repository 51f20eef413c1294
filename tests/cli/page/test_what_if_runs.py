"""What the page may ask koord what-if."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from multidict import CIMultiDict

from koordinator.api.codec import encode
from koordinator.cli.main import make_parser
from koordinator.cli.page.what_if_runs import WhatIfRuns
from koordinator.kube.pages import PageError, Request

RUNS = WhatIfRuns()
NOBODY: Any = None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"change": "drain", "nodes": ["a", "b"]}, ["drain", "a", "b"]),
        ({"change": "drain", "nodes": ["a"], "force": True}, ["drain", "a", "--force"]),
        ({"change": "remove-node", "nodes": ["a"]}, ["remove-node", "a"]),
        ({"change": "add-node", "like": "a", "count": 2}, ["add-node", "--like", "a", "--count", "2"]),
        (
            {"change": "scale", "workload": "deployment/web", "namespace": "shop", "replicas": 0},
            ["scale", "deployment/web", "--replicas", "0", "-n", "shop"],
        ),
        ({"change": "delete", "object": "elasticquota/team"}, ["delete", "elasticquota/team"]),
        ({"change": "config", "file": "a: b", "replay": True}, ["config", "--replay"]),
    ],
)
def test_a_change_becomes_a_command_that_there_is(given: dict[str, Any], words: list[str]) -> None:
    found = RUNS.words_of(given)
    assert found == ["what-if", *words]
    files = ["-f", "x"] if "file" in given else []
    assert make_parser(["what-if"]).parse_args([*found, *files]).change == given["change"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "change: None is not known"),
        ({"change": "snapshot"}, "change: 'snapshot' is not known"),
        ({"change": "drain", "nodes": []}, "nodes: the names"),
        ({"change": "drain", "nodes": ["--kubeconfig=/etc/shadow"]}, "nodes: '--kubeconfig=/etc/shadow' is not usable"),
        ({"change": "add-node", "like": "a", "count": True}, "count: True is not usable"),
        ({"change": "add-node", "like": "a", "count": 0}, "count: 0 is not usable: a whole number from 1"),
        ({"change": "scale", "workload": "web", "replicas": 1}, "workload: 'web' is not usable"),
        ({"change": "apply", "file": " "}, "file: the text of one is needed"),
    ],
)
def test_what_is_not_usable_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PageError) as refusal:
        RUNS.words_of(given)
    assert refusal.value.response.status == 400
    assert said in refusal.value.response.body.decode()


def test_a_body_that_is_no_json_is_refused() -> None:
    with pytest.raises(PageError) as refusal:
        asyncio.run(RUNS.respond(Request.to("POST", "/api/what-if", CIMultiDict(), encode([1])), NOBODY))
    assert refusal.value.response.status == 400
