"""Headless Chromium for tests of pages: the DevTools protocol over a pair of pipes, nothing but the browser needed.

`find()` names the browser, or says why there is none. A `Page` is loaded from a file, with the network off; what its
console says and what it asks the network for is kept.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ABSENT = f"no Chromium here: none of {', '.join(NAMES)} is on PATH (and CHROMIUM names none)"
TIMEOUT_S = 120.0

HIGH = 100
"""The browser's ends of the pipes pass through descriptors from here on, whichever are free."""


def find() -> str | None:
    """The browser's path: what the environment variable CHROMIUM names, else the first of `NAMES` on PATH."""
    named = os.environ.get("CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page in the browser."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._held = b""
        self._number = 0
        self._session: str | None = None
        self.console: list[str] = []
        """Errors and warnings: of scripts, of the security policy, of anything that was not loaded."""
        self.requests: list[str] = []
        """Addresses that the page asked for, the page itself included."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return dict(answer["result"])

    def load(self, path: Path, fragment: str = "") -> None:
        """Open a file and wait until it is loaded."""
        self.send("Page.navigate", url=path.as_uri() + fragment)
        while self.evaluate("document.readyState") != "complete" or self.evaluate("location.href") == "about:blank":
            time.sleep(0.02)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        held = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in held, held["exceptionDetails"]
        return held["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key, as a user would: Tab, Enter, or a character."""
        code = {"Tab": 9, "Enter": 13}.get(key, 0)
        text = {"Enter": "\r"}.get(key, "" if code else key)
        extra = {"text": text} if text else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **extra)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(
        self, width: int, height: int, scale: float = 1.0, *, scheme: str = "light", top: str = "body"
    ) -> bytes:
        """The page from the element `top` on in a theme, as a PNG of `width` x `height` pixels.

        `scale` below 1 shrinks it.
        """
        shown = {"width": round(width / scale), "height": round(height / scale)}
        self.send("Emulation.setScrollbarsHidden", hidden=True)
        self.send("Emulation.setDeviceMetricsOverride", **shown, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        try:
            self.evaluate(f"document.querySelector({json.dumps(top)}).scrollIntoView()")
            clip = {"x": 0, "y": self.evaluate("scrollY"), **shown, "scale": scale}
            return base64.b64decode(self.send("Page.captureScreenshot", format="png", clip=clip)["data"])
        finally:
            self.send("Emulation.setScrollbarsHidden", hidden=False)
            self.send("Emulation.setEmulatedMedia", features=[])
            self.send("Emulation.clearDeviceMetricsOverride")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + TIMEOUT_S
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never became true: {expression}"
            time.sleep(0.02)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._from], [], [], TIMEOUT_S)
            assert ready, "the browser does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser has gone"
            self._held += data
        line, _, self._held = self._held.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.console.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.console.append(json.dumps(params["args"]))
            case "Log.entryAdded":
                self.console.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
        return message


@contextmanager
def opened(browser: str, profile: Path) -> Iterator[Page]:
    """A browser with one page; its profile goes to an empty folder. Ends the browser."""
    read_by_browser, to_browser = os.pipe()
    from_browser, written_by_browser = os.pipe()

    def pass_on() -> None:
        # The browser speaks on descriptors 3 and 4. Moved to free ones first, neither end overwrites the other: where
        # this process had some fifty open, one did, and the browser was gone.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, HIGH) for end in (read_by_browser, written_by_browser)]
        for number, end in enumerate(high):
            os.dup2(end, 3 + number)

    process = subprocess.Popen(
        [
            browser,
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=False,
        preexec_fn=pass_on,
        env=os.environ | {"TMPDIR": "/tmp"},  # it has a socket there, whose name may have 107 bytes
    )
    os.close(read_by_browser)
    os.close(written_by_browser)
    try:
        yield Page(to_browser, from_browser)
    finally:
        process.kill()
        process.wait()
        os.close(to_browser)
        os.close(from_browser)
