"""How pages are read: what of a page is a command, and what is not."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Callable

import pytest
import yaml

from tests.docs.pages import Page, pages
from tests.docs.printed import missing


def commands(text: str) -> list[tuple[int, str, str]]:
    return [(command.line, command.text, command.not_run) for command in Page("page.md", text).commands]


def test_indented_and_fenced_blocks_have_commands() -> None:
    text = "Run\n\n    make help\n    kubectl get nodes  # all\n\nand\n\n```sh\n$ anything goes\n```\n"
    assert commands(text) == [(3, "make help", ""), (4, "kubectl get nodes", ""), (9, "anything goes", "")]


def test_a_block_of_output_has_none() -> None:
    assert commands("It says\n\n    default/web  is on node a\n\n```yaml\nkubectl: no\n```\n") == []


def test_a_drawing_has_none() -> None:
    assert commands("See\n\n    kubectl apply ──► API server\n") == []


def test_a_paragraph_of_a_list_is_no_block() -> None:
    assert commands("- a point\n\n    make sure of it\n") == []


def test_a_block_may_say_why_it_is_not_run() -> None:
    text = "<!-- not run: needs a GPU -->\n\n    make help\n\nbut\n\n    make help\n"
    assert [why for _, _, why in commands(text)] == ["needs a GPU", ""]


def test_a_block_may_say_which_of_its_commands_are_not_run() -> None:
    marks = "<!-- not run `make help`: it is known -->\n<!-- not run `go`: needs Go -->\n"
    text = f"{marks}\n    make help\n    make run\n    go on\n"
    assert [why for _, _, why in commands(text)] == ["it is known", "", "needs Go"]


def test_a_session_has_commands_after_prompts_and_what_they_print() -> None:
    page = Page("page.md", "See\n\n    $ koord status\n    healthy\n      1 node\n    $ koord top\n    none\n")
    assert [(each.text, each.prints) for each in page.commands] == [
        ("koord status", "healthy\n  1 node"),
        ("koord top", "none"),
    ]


def test_a_block_may_be_what_the_last_command_before_it_prints() -> None:
    page = Page("page.md", "See\n\n    koord top\n    koord status\n\nprints\n\n<!-- prints -->\n\n    healthy\n")
    assert [each.prints for each in page.commands] == ["", "healthy\n"]


def test_a_sentence_that_begins_with_the_name_of_a_program_is_no_command() -> None:
    assert commands("It says\n\n    koordlet goes by its ConfigMap\n") == []
    assert len(commands("Run\n\n    koordlet --help\n")) == 1


@pytest.mark.parametrize(
    ("shown", "printed", "lacking"),
    [
        ("2 nodes", "17 nodes", ""),
        ("all is well", "all is\n   well, as it was", ""),
        ("in ~/folder of http://a:1", "in /tmp/x of https://127.0.0.1:2", ""),
        ("well: a (ping), b …", "well: a (ping, storage), b (none)", ""),
        ("one\n\ntwo", "two\n\none", "two"),
        ("\u2503 node \u2503 pods \u2503\n\u2502 a \u2502 1 \u2502", "node   pods\nb      2", ""),
        ("\u2503 node \u2503 pods \u2503\n\u2502 a \u2502 1 \u2502", "+------+\n| node | pods |\n|------+", ""),
        ("nodes are ready", "no nodes", "nodes are ready"),
    ],
)
def test_what_is_printed_is_compared_by_what_stays(shown: str, printed: str, lacking: str) -> None:
    assert missing(shown, printed) == lacking


def test_a_page_may_say_why_none_of_it_is_run() -> None:
    text = "# Title\n<!-- not run on this page: needs a cluster -->\n\n    make help\n\nand\n\n    make help\n"
    assert [why for _, _, why in commands(text)] == ["needs a cluster", "needs a cluster"]


def test_commands_in_a_sentence_are_found() -> None:
    page = Page("page.md", "Say `koord up --nodes 5` or\n`koord-manager\n--v=2`, not `koord` or `--nodes`.\n")
    assert [(each.line, each.text) for each in page.mentioned] == [
        (1, "koord up --nodes 5"),
        (2, "koord-manager --v=2"),
    ]


def test_continued_lines_and_heredocs_are_one_command() -> None:
    text = "```sh\nkubectl get \\\n  pods\ncat <<EOF > x\na # b\nEOF\nmake help\n```\n"
    assert [found for _, found, _ in commands(text)] == ["kubectl get pods", "cat <<EOF > x\na # b\nEOF", "make help"]


def test_a_number_sign_in_quotes_is_no_comment() -> None:
    assert commands("```sh\nkubectl get pods -l 'a=#1' # b\n```\n") == [(2, "kubectl get pods -l 'a=#1'", "")]


def test_words_end_at_a_pipe_and_begin_after_settings() -> None:
    (command,) = Page("page.md", "```sh\nA=b kubectl get pods | head\n```\n").commands
    assert command.words == ["kubectl", "get", "pods"]


def _compiled(text: str) -> None:
    compile(text, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


_READERS: dict[str, Callable[[str], object]] = {"json": json.loads, "toml": tomllib.loads, "python": _compiled}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_examples_are_well_formed(page: Page) -> None:
    for block in page.blocks:
        if block.language in ("yaml", "yml"):
            list(yaml.safe_load_all(block.text))
        elif reader := _READERS.get(block.language):
            reader(block.text)
