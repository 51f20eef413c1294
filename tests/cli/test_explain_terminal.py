"""What ``koord explain`` prints fits the terminal: its width, its characters, its colours."""

from __future__ import annotations

import io
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.explanations import PodExplanation
from koordinator.api.node_explanation import NodeExplanation
from koordinator.cli.explain_node import print_node
from koordinator.cli.explain_pod import print_pod
from koordinator.cli.explain_terminal import Terminal, terminal_of, text_of, write
from tests.scheduler.explain.scene import Scene, make_node, make_pod, tainted

LONG = "ip-10-0-12-34.eu-central-1.compute.internal"
UNICODE = {"LANG": "en_GB.UTF-8", "TERM": "xterm"}


class Stream(io.TextIOWrapper):
    """Standard output of a person's terminal, or of something else."""

    def __init__(self, encoding: str = "utf-8", *, terminal: bool = True) -> None:
        self.written = io.BytesIO()
        self._terminal = terminal
        super().__init__(self.written, encoding=encoding)

    def isatty(self) -> bool:
        return self._terminal


def placed() -> Scene:
    scene = Scene(*(make_node(f"{number}-{LONG}") for number in range(4)))
    scene.report(f"0-{LONG}", cpu="1", memory="2Gi")
    scene.try_pod(make_pod("p"))
    return scene


def pending() -> Scene:
    scene = Scene(tainted(make_node(LONG, cpu="32"), "team", "data"), make_node("small", cpu="4"))
    scene.try_pod(make_pod("p", cpu="9"))
    scene.try_pod(make_pod("p", cpu="9"))
    return scene


DOCUMENTS: dict[str, Any] = {
    "placed": (print_pod, lambda: convert(placed().pod("p"), PodExplanation)),
    "pending": (print_pod, lambda: convert(pending().pod("p"), PodExplanation)),
    "node": (print_node, lambda: convert(placed().node(f"0-{LONG}"), NodeExplanation)),
    "node that takes nothing": (print_node, lambda: convert(pending().node("small"), NodeExplanation)),
}


def printed(what: str, terminal: Terminal) -> str:
    show, document = DOCUMENTS[what]
    console = terminal.console()
    show(terminal.readable(document()), console)
    return text_of(console)


@pytest.mark.parametrize("what", DOCUMENTS)
@pytest.mark.parametrize("width", [60, 80, 132])
def test_no_line_is_wider_than_the_terminal(what: str, width: int) -> None:
    assert max(map(len, printed(what, Terminal(width=width)).splitlines())) <= width


@pytest.mark.parametrize("what", DOCUMENTS)
def test_plain_ascii_where_no_more_can_be_shown(what: str) -> None:
    assert printed(what, Terminal(ascii_only=True)).isascii()


@pytest.mark.parametrize("what", DOCUMENTS)
def test_no_escape_sequences_without_colour(what: str) -> None:
    assert "\x1b" not in printed(what, Terminal(ascii_only=False, colour=False))


def test_colour_where_it_is_wanted() -> None:
    assert "\x1b[1m" in printed("pending", Terminal(colour=True))


def test_a_name_is_never_cut_off() -> None:
    text = printed("pending", Terminal(width=60))
    cells = "".join(line.split("|")[1].strip() for line in text.splitlines() if line.count("|") == 3)
    assert LONG in cells


def test_a_wide_terminal_is_used() -> None:
    assert max(map(len, printed("pending", Terminal(width=200)).splitlines())) > 100


@pytest.mark.parametrize(
    ("environment", "stream", "plain"),
    [
        (UNICODE, Stream(), False),
        ({**UNICODE, "TERM": "dumb"}, Stream(), True),
        ({"TERM": "xterm", "LANG": "C"}, Stream(), True),
        ({"TERM": "xterm"}, Stream(), True),
        ({"TERM": "xterm", "LANG": "C", "LC_ALL": "C.UTF-8"}, Stream(), False),
        ({**UNICODE, "LC_ALL": "C"}, Stream(), True),
        (UNICODE, Stream("ascii"), True),
        (UNICODE, Stream("latin-1"), True),
        (UNICODE, Stream(terminal=False), True),
        ({"TERM": "xterm", "LANG": "de_DE.utf8@euro"}, Stream(), False),
    ],
)
def test_whether_the_terminal_has_more_than_ascii(environment: dict[str, str], stream: Stream, plain: bool) -> None:
    assert terminal_of(stream, environment).ascii_only is plain


@pytest.mark.parametrize(
    ("environment", "terminal", "colour"),
    [
        (UNICODE, True, True),
        ({**UNICODE, "NO_COLOR": "1"}, True, False),
        ({**UNICODE, "NO_COLOR": ""}, True, True),
        ({**UNICODE, "TERM": "dumb"}, True, False),
        (UNICODE, False, False),
    ],
)
def test_whether_there_is_colour(environment: dict[str, str], terminal: bool, colour: bool) -> None:
    assert terminal_of(Stream(terminal=terminal), environment).colour is colour


@pytest.mark.parametrize(
    ("columns", "width"), [("", 80), ("200", 200), ("x", 80), ("0", 80), ("1", 40), ("9" * 9, 999999999)]
)
def test_the_width_without_a_terminal_is_80_or_what_columns_says(columns: str, width: int) -> None:
    assert terminal_of(Stream(terminal=False), {"COLUMNS": columns}).width == width


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_the_stream_cannot_carry_is_escaped(encoding: str) -> None:
    stream = Stream(encoding)
    write("名 ok\n", stream, terminal_of(stream, UNICODE))
    assert b" ok\n" in stream.written.getvalue()


def test_texts_of_others_cannot_steer_the_terminal() -> None:
    assert Terminal(ascii_only=False).readable({"message": ["\x1b[2Jgone\r"]}) == {"message": ["?[2Jgone?"]}


def test_texts_of_others_keep_their_characters_where_the_stream_has_them() -> None:
    assert Terminal(ascii_only=True, encoding="utf-8").readable("名…") == "名..."
    assert Terminal(ascii_only=True, encoding="ascii").readable("名…") == "\\u540d..."
