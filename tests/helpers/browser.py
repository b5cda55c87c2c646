"""A headless Chromium that is spoken to through its own pipe: opens a page, says what it asked for and complained about."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any


class Browser:
    """One tab.

    Arguments:
        width: of the page in CSS pixels.
    """

    def __init__(self, width: int, height: int = 900) -> None:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        assert program is not None, "tests with the marker `browser` need chromium"
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        here, to_here = os.pipe()
        there, to_there = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        options += [f"--user-data-dir={self._profile.name}", "--no-first-run", "--disable-background-networking", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{there} 4>&{to_here}', "bash", program, *options],
            pass_fds=(there, to_here),
            stderr=subprocess.DEVNULL,
        )
        os.close(there)
        os.close(to_here)
        self._answers, self._commands = os.fdopen(here, "rb"), os.fdopen(to_there, "wb")
        self._number, self._session, self._rest = 0, "", b""
        self.requests: list[str] = []
        """Addresses that pages asked for."""
        self.complaints: list[str] = []
        """Errors, warnings and messages of the console."""
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self(f"{domain}.enable")
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __call__(self, method: str, **parameters: Any) -> Any:
        """Send a command and wait for its answer; what happens meanwhile is noted."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        self._commands.write(json.dumps(command).encode() + b"\0")
        self._commands.flush()
        while (message := self._message()).get("id") != self._number:
            self._note(message)
        assert "error" not in message, message
        return message["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = self._answers.read1(2**16)
            assert part, "the browser has ended"
            self._rest += part
        text, self._rest = self._rest.split(b"\0", 1)
        return json.loads(text)  # type: ignore[no-any-return]

    def _note(self, message: dict[str, Any]) -> None:
        happened, about = message.get("method"), message.get("params", {})
        if happened == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif happened in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(about))

    def open(self, path: Path) -> None:
        """Open a file and wait until all of it is there."""
        self("Page.navigate", url=path.resolve().as_uri())
        while self.value("document.readyState") != "complete":
            pass

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is on the page."""
        return self("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self, path: Path) -> None:
        """The whole page as a .png."""
        data = self("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._session = ""
        self("Browser.close")
        self._process.wait(timeout=30)
        self._commands.close()
        self._answers.close()
        self._profile.cleanup()
