"""The ports of ``koord up``: one for all, free ones, or one of its own for each."""

from __future__ import annotations

import pytest

from koordinator.cli.main import make_parser
from koordinator.cli.up import ports_of


def ports(*arguments: str) -> dict[str, int]:
    return ports_of(make_parser(["up"]).parse_args(["up", *arguments]))


def test_one_port_gives_all() -> None:
    assert list(ports("--port-base=7000").values()) == list(range(7000, 7008))
    assert ports("--port-base=7000")["port"] == 7000


def test_a_port_of_its_own_counts_before_those_for_all() -> None:
    assert ports("--port-base=7000", "--webhook-port=9000")["webhook-port"] == 9000
    assert ports("--free-ports", "--port=6443") == {name: 6443 if name == "port" else 0 for name in ports()}


def test_zero_is_any_free_port() -> None:
    assert set(ports("--port-base=0").values()) == {0}


@pytest.mark.parametrize("port", ["65529", "-1", "many"])
def test_a_port_that_leaves_no_room_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ports(f"--port-base={port}")
    assert "a whole number from 0 to 65528 is needed" in capsys.readouterr().err
