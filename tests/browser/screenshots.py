"""Pictures of ``koord page`` after the day of ``koord demo``, for docs/images: ``make screenshots``.

Look at them before they are committed.
"""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, get_args

from tests.browser.chromium import Chromium, Scheme, chromium
from tests.browser.served_page import printed_by

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images"
MOST_BYTES: Final = 150 << 10
_QUALITY: Final = 80
_SIZES: Final = {"desktop": (1280, 900), "phone": (390, 844)}
_PENDING: Final = "explain/pod/default/quarterly-report"
_PLACES: Final = {
    "overview": ("overview", "Last: online"),
    "nodes": ("nodes", "node-0"),
    "pending": (_PENDING, "In full"),
}
"""What is shown, and a text by which it is there."""


@contextmanager
def demo(folder: Path) -> Iterator[str]:
    """A link to the page of a day that has been played."""
    koord = (sys.executable, "-m", "koordinator.cli.main")
    words = ("demo", "--keep", "--data", str(folder))
    with subprocess.Popen((*koord, *words), stdout=subprocess.PIPE, text=True) as process:
        try:
            printed_by(process, "page --data")
            page = (*koord, "page", "--data", str(folder), "--no-browser")
            found = subprocess.run(page, stdout=subprocess.PIPE, text=True, check=True)
            yield next(word for word in found.stdout.split() if "://" in word)
        finally:
            process.send_signal(signal.SIGINT)


def picture(window: Chromium) -> bytes:
    """What the window shows, as WebP."""
    options = {"format": "webp", "quality": _QUALITY}
    found = window.driver.execute_cdp_cmd("Page.captureScreenshot", options)
    return base64.b64decode(found["data"])


def main() -> None:
    """Write all of them. Each has to be small: the repository keeps every version."""
    with tempfile.TemporaryDirectory() as name, demo(Path(name)) as link, chromium() as window:
        window.open(link)
        for size, (width, height) in _SIZES.items():
            window.size(width, height)
            for scheme in get_args(Scheme):
                window.scheme(scheme)
                for title, (place, text) in _PLACES.items():
                    window.go(title)
                    window.go(place)
                    window.shows(text)
                    found = picture(window)
                    path = FOLDER / f"page-{title}-{size}-{scheme}.webp"
                    assert len(found) < MOST_BYTES, f"{path.name} has {len(found)} bytes"
                    path.write_bytes(found)


if __name__ == "__main__":
    main()
