"""The report as a picture: an SVG that needs no fonts from anywhere."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from koordinator.base.errors import ConfigurationError
from koordinator.cli.demo.observation import Day
from koordinator.cli.demo.report import Claim, print_report

_WIDTH: Final = 118
"""Columns."""
_TEMPLATE: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<!-- Written by make picture, from a real run. -->
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def save_picture(day: Day, judged: Sequence[Claim], path: Path) -> None:
    """Write it. Raises ConfigurationError where that is not possible."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    print_report(day, judged, console)
    text = console.export_svg(title="koord demo", code_format=_TEMPLATE, unique_id="koord-demo")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")
    except OSError as error:
        raise ConfigurationError("--svg", str(path), f"it cannot be written: {error.strerror}") from error
