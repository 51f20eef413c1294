"""Base64 as Go reads and writes it; where bad text ends is what Go's decoder says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.base64_text import Base64Error, decode_base64, encode_base64


@given(st.binary(), st.lists(st.tuples(st.integers(0, 40), st.sampled_from("\r\n")), max_size=5))
def test_line_breaks_do_not_count(data: bytes, breaks: list[tuple[int, str]]) -> None:
    text = encode_base64(data)
    for position, character in breaks:
        text = text[:position] + character + text[position:]
    assert decode_base64(text) == data


@given(st.text(alphabet="AZz09+/=\n é"))
def test_what_is_accepted_can_be_written_again(text: str) -> None:
    try:
        data = decode_base64(text)
    except Base64Error:
        return
    assert decode_base64(encode_base64(data)) == data


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("?", 0), ("A", 0), ("AA", 0), ("AAA", 0), ("AAAAA", 4), ("A===", 1), ("AA=", 3), ("AA=A", 2), ("AA==A", 4),
        ("AAA=A", 4), ("AAEC=", 4), ("====", 0), ("AA E", 2), ("AA-_", 2), ("äAAA", 0), ("AA==\nAA==", 5),
        ("AAAA\nAA", 5), ("AA=\n", 4), ("AA\n=\nA", 4),
    ],
)  # fmt: skip
def test_bad_text(text: str, position: int) -> None:
    with pytest.raises(Base64Error) as error:
        decode_base64(text)
    assert str(error.value) == f"illegal base64 data at input byte {position}"
