"""Tables and fields by the names that stand in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.device_daemon.machine import DiscoveryError
from koordinator.device_daemon.tool_output import Field, number, read_fields, read_table, sum_of, values_of

KNOWN = ("npu id", "chip id", "chip phy id", "chip name")


def rows(output: str) -> list[dict[str, str]]:
    return list(read_table(output, KNOWN, {"npu id", "chip name"}, "the tool").rows)


@pytest.mark.parametrize(
    "header",
    [
        "NPU ID  Chip ID  Chip Phy-ID  Chip Name",
        "NPU ID Chip ID Chip Phy-ID Chip Name",
        "npu-id\tchip-id\tCHIP PHY ID\tchip name",
    ],
    ids=["columns", "single blanks", "tabs"],
)
def test_names_are_known_however_they_are_written(header: str) -> None:
    assert rows(f"{header}\n0 1 2 Ascend 910B3\n") == [
        {"npu id": "0", "chip id": "1", "chip phy id": "2", "chip name": "Ascend 910B3"}
    ]


def test_columns_may_stand_in_any_order_and_be_new() -> None:
    output = "Chip Name      Shelf   Chip Phy-ID   NPU ID\nAscend 910B3   upper   2             0\n"
    assert rows(output) == [{"chip name": "Ascend 910B3", "shelf": "upper", "chip phy id": "2", "npu id": "0"}]


def test_lines_above_the_header_do_not_count() -> None:
    assert len(rows("npu-smi 25.5.1   Version: 25.5.1\n\nNPU ID  Chip Name\n0  Ascend\n")) == 1


def test_rows_with_another_number_of_cells_are_odd() -> None:
    table = read_table("NPU ID  Chip ID  Chip Name\n0\n1  0  Ascend\n", KNOWN, {"npu id"}, "the tool")
    assert (table.odd, [row["npu id"] for row in table.rows]) == (["0"], ["1"])


@pytest.mark.parametrize("output", ["", "x", "NPU ID  Slot\n0  1\n", "NPU ID  NPU ID  Chip Name\n0  1  Ascend\n"])
def test_without_the_columns_there_is_no_table(output: str) -> None:
    with pytest.raises(DiscoveryError, match="the tool has no table with the columns chip name, npu id"):
        rows(output)


def test_a_field_has_the_name_of_the_line_that_it_is_indented_below() -> None:
    output = "Card 0\n    Health :\n        Device : Good\n    PCI :\n        Device : 1a\n"
    assert [field for field in read_fields(output) if field.name == "device"] == [
        Field("health", "device", "Good"),
        Field("pci", "device", "1a"),
    ]


def test_the_unit_is_no_part_of_a_name() -> None:
    fields = read_fields("HBM Capacity(MB) : 65536\nDDR Capacity (MB) : NA\nHBM Used(MB) : 1\n")
    assert sum_of(fields, "hbm capacity", "ddr capacity") == 65536


def test_the_error_names_the_field_whose_value_is_no_number() -> None:
    fields = read_fields("DDR Capacity(MB) : 0\nHBM Capacity(MB) : much\n")
    with pytest.raises(DiscoveryError, match=r"^hbm capacity 'much' is not a number$"):
        sum_of(fields, "ddr capacity", "hbm capacity")


def test_a_name_within_another_name_is_another_field() -> None:
    assert values_of("NPU ID : 3\nNPU ID of the host : 9\n", "npu id") == ["3"]


@pytest.mark.parametrize("text", ["", "-1", "1.5", "１", "x", "9" * 5000])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(DiscoveryError):
        number(text, "memory")


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    list(read_fields(text))
    try:
        table = read_table(f"NPU ID  Chip Name\n{text}", KNOWN, {"npu id"}, "the tool")
    except DiscoveryError:
        return
    assert all(set(row) == set(table.columns) for row in table.rows)
