"""A real Chromium, as a person uses it: what it shows, what it asks for, and what it complains about."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.ui import WebDriverWait

Scheme = Literal["light", "dark"]
HOW_TO_GET: Final = "needs Chromium and its driver: apt-get install chromium chromium-driver"
_AXE: Final = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
_QUIET: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
)  # fmt: skip
_SECONDS: Final = 60.0
"""A machine may be busy; what has to be quick says so itself."""


class Chromium:
    """One window. ``until`` waits for what the page shows; nothing else waits."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, link: str) -> None:
        """In a browser that knows nothing of what was before."""
        self.driver.delete_all_cookies()
        self.driver.get(link)
        self._told = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        self.driver.get_log("performance")  # type: ignore[no-untyped-call]

    def go(self, place: str) -> None:
        """To a place of the page, such as ``nodes`` or ``explain/pod/default/web``."""
        self.run("location.hash = arguments[0]", f"#/{place}")

    def run(self, script: str, *given: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *given)

    def text(self, selector: str = "body") -> str:
        """Of all elements of a selector, as a person reads them; empty where there are none."""
        found: str = self.run(
            "return [...document.querySelectorAll(arguments[0])].map(each => each.innerText).join('\\n')", selector
        )
        return found

    def count(self, selector: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def until(self, holds: Callable[[], Any], seconds: float = _SECONDS) -> Any:
        """What ``holds`` returns, as soon as that is something."""
        wait = WebDriverWait(
            self.driver, seconds, poll_frequency=0.05, ignored_exceptions=[StaleElementReferenceException]
        )
        return wait.until(lambda _: holds(), f"the page shows: {self.text()[:3000]}")

    def shows(self, text: str, selector: str = "body", seconds: float = _SECONDS) -> None:
        """Wait for a text."""
        self.until(lambda: text in self.text(selector), seconds)

    def press(self, *keys: str) -> None:
        """Keys, one after the other, for what has the focus."""
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def focused(self) -> str:
        """What has the focus: its role or element, and its name."""
        found: str = self.run(
            "const a = document.activeElement;"
            "return `${a.getAttribute('role') ?? a.localName} ${a.ariaLabel ?? a.innerText ?? ''}`.trim()"
        )
        return found

    def size(self, width: int, height: int = 900) -> None:
        """Of the viewport. Windows cannot be as narrow as telephones are."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, scheme: Scheme) -> None:
        """What the viewer prefers."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def zone(self, name: str) -> None:
        """Where the viewer is."""
        self.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": name})

    def overflow(self) -> int:
        """By how many pixels the page is wider than the viewport."""
        return int(self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def complaints(self) -> list[str]:
        """What the browser has said since ``open``: errors, warnings, and what the policy of the page forbids. That
        a server does not answer is no fault of the page."""
        self._told += self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        told = [each["message"] for each in self._told if each["level"] in ("SEVERE", "WARNING")]
        return [each for each in told if "Failed to load resource" not in each]

    def hosts(self) -> set[str]:
        """All that the page has asked for something since ``open``; ``data:`` asks nobody."""
        entries = (json.loads(each["message"])["message"] for each in self.driver.get_log("performance"))  # type: ignore[no-untyped-call]
        urls = (each["params"]["request"]["url"] for each in entries if each["method"] == "Network.requestWillBeSent")
        return {urlsplit(url).netloc for url in urls} - {""}

    def violations(self) -> list[str]:
        """What axe-core finds on what is shown now: the rule, and the elements that break it."""
        if not self.run("return 'axe' in window"):
            # Not as an element of the page, whose policy would refuse it.
            expression = {"expression": _AXE.read_text()}
            self.driver.execute_cdp_cmd("Runtime.evaluate", expression)
        found = self.driver.execute_async_script(
            "axe.run().then(arguments[0], error => arguments[0]({violations: [{id: String(error), nodes: []}]}))"
        )
        return [f"{each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}" for each in found["violations"]]


def has_axe() -> bool:
    """Whether ``npm ci`` has been run here."""
    return _AXE.exists()


@contextmanager
def chromium() -> Iterator[Chromium]:
    """A window that ends with the block. The test is skipped where there is no Chromium."""
    programs = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if None in programs:
        pytest.skip(HOW_TO_GET)
    browser, driver = programs
    options = webdriver.ChromeOptions()
    options.binary_location = str(browser)
    options.accept_insecure_certs = True
    for argument in _QUIET:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = webdriver.Chrome(options, Service(str(driver)))
    try:
        window.set_script_timeout(_SECONDS)
        yield Chromium(window)
    finally:
        window.quit()
