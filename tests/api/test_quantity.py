from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.quantity import Bytes, Format, MilliCPU, Quantity, QuantityError
from tests.api.quantity_table import CANONICAL, REFUSED

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{suffix: Fraction(1024**power) for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
_NANO = Fraction(1, 10**9)
_decimals = st.tuples(st.integers(0, 10**12), st.integers(0, 12)).map(lambda pair: Fraction(pair[0], 10 ** pair[1]))
_amounts = st.integers(-(10**27), 10**27)
_formats = st.sampled_from(Format)


def _text(number: Fraction, suffix: str) -> str:
    digits = f"{int(number * 10**12):013d}"
    return f"{digits[:-12]}.{digits[-12:]}{suffix}"


@pytest.mark.parametrize(("text", "canonical", "_"), CANONICAL)
def test_prints_as_kubernetes_does(text: str, canonical: str, _: str) -> None:
    assert str(Quantity.parse(text)) == canonical


@pytest.mark.parametrize(("text", "_", "rounded"), CANONICAL)
def test_rounds_to_thousandths_as_kubernetes_does(text: str, _: str, rounded: str) -> None:
    assert str(Quantity.parse(text).round_up_to_milli()) == rounded


@pytest.mark.parametrize("text", REFUSED)
def test_refuses_what_kubernetes_refuses(text: str) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(text)


def test_a_number_of_json_is_read_like_its_text() -> None:
    assert [str(Quantity.parse(number)) for number in (2, 0.5, 1.5)] == ["2", "500m", "1500m"]


def test_an_amount_beyond_an_int64_keeps_its_suffix() -> None:
    """client-go prints 1000E as 1, since it knows no suffix for it."""
    assert str(Quantity.parse("1000E")) == "1000E"


def test_an_absurd_exponent_is_cut_at_once() -> None:
    assert Quantity.parse("1e999999999").value == 2**63 - 1


@given(number=_decimals, suffix=st.sampled_from(sorted(_SUFFIXES)), negative=st.booleans())
def test_the_amount_is_the_texts_rounded_away_from_zero(number: Fraction, suffix: str, negative: bool) -> None:
    exact = number * _SUFFIXES[suffix]
    cap = Fraction(2**63 - 1) if suffix.endswith("i") else Fraction(10**55)
    nanos = -(-min(exact, cap) // _NANO)
    assert Quantity.parse(("-" if negative else "") + _text(number, suffix)).nanos == (-nanos if negative else nanos)


@given(nanos=_amounts, quantity_format=_formats)
def test_printing_and_parsing_give_the_same_amount(nanos: int, quantity_format: Format) -> None:
    assert Quantity.parse(str(Quantity(nanos, quantity_format))).nanos == nanos


@given(nanos=_amounts, quantity_format=_formats)
def test_a_canonical_text_stays_as_it_is(nanos: int, quantity_format: Format) -> None:
    text = str(Quantity(nanos, quantity_format))
    assert str(Quantity.parse(text)) == text


@given(nanos=_amounts)
def test_the_canonical_text_of_a_decimal_has_the_largest_suffix(nanos: int) -> None:
    text = str(Quantity(nanos))
    assert not text.endswith(tuple(f"000{suffix}" for suffix in ("n", "u", "m", "k", "M", "G", "T", "P")))


@given(left=_amounts, right=_amounts)
def test_the_order_is_that_of_the_amounts(left: int, right: int) -> None:
    one, other = Quantity.parse(str(Quantity(left))), Quantity.parse(str(Quantity(right, Format.BINARY_SI)))
    assert (one < other, one == other) == (left < right, left == right)


@given(nanos=_amounts)
def test_values_are_whole_and_rounded_away_from_zero(nanos: int) -> None:
    quantity = Quantity(nanos)
    expected = min(-(-abs(nanos) // 10**9), 2**63 - 1)
    assert quantity.value == (expected if nanos >= 0 else -expected)


@given(
    text=st.sampled_from([text for text, *_ in CANONICAL])
    | st.builds(str.__add__, st.text("0123456789٣²", max_size=18), st.sampled_from(("", "m", "Ki", "Mi", "k")))
)
def test_a_reading_alone_is_that_of_the_quantity(text: str) -> None:
    try:
        expected = Quantity.parse(text)
    except QuantityError:
        for reading in (MilliCPU, Bytes):
            with pytest.raises(QuantityError):
                reading.parse(text)
    else:
        assert (MilliCPU.parse(text), Bytes.parse(text)) == (expected.milli, expected.value)


@given(text=st.text(alphabet="0123456789.+-eEinumkKMGTP ", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantityError:
        return
    assert Quantity.parse(str(quantity)) == quantity
