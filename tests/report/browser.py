"""A real Chromium, driven over a pipe by its own protocol: no driver and no package is needed."""

import base64
import json
import os
import select
import shutil
import tempfile
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser():
    """The path of a Chromium, or None; on Windows this module cannot start one."""
    if fcntl is None:
        return None
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser refused, or did not answer in time."""


class Browser:
    """One page of a headless browser. Messages are JSON texts that end with a zero byte."""

    def __init__(self, limit=60.0):
        self.errors = []  # of the console and the page
        self.own = None  # the only address that the page may ask
        self._limit, self._count, self._rest, self._replies = limit, 0, b"", {}
        self._profile = tempfile.mkdtemp(prefix="mmb-browser-")
        arguments = [
            find_browser(),
            "--headless=new",
            "--no-sandbox",  # for root in a container; the only page ever opened is ours
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile}",
            "about:blank",
        ]
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        # Away from 3 and 4, where the browser expects its pipes.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (to_child, from_child)]
        quiet = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, quiet, 1), (os.POSIX_SPAWN_DUP2, quiet, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, ends[0], 3), (os.POSIX_SPAWN_DUP2, ends[1], 4)]
        self._process = os.posix_spawn(arguments[0], arguments, os.environ, file_actions=actions)
        for end in (to_child, from_child, *ends, quiet):
            os.close(end)
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._session = None
            self.call("Browser.close")
        finally:
            os.close(self._write)
            os.waitpid(self._process, 0)
            os.close(self._read)
            shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method, **parameters):
        """Call a method of the protocol and wait for its reply."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end, number = time.monotonic() + self._limit, self._count
        while number not in self._replies:
            if not select.select([self._read], [], [], max(0, end - time.monotonic()))[0]:
                raise BrowserError(f"no reply to {method} within {self._limit} s")
            self._take()
        reply = self._replies.pop(number)
        if "error" in reply:
            raise BrowserError(f"{method}: {reply['error']}")
        return reply["result"]

    def _take(self):
        piece = os.read(self._read, 1 << 20)
        if not piece:
            raise BrowserError("the browser went away")
        *whole, self._rest = (self._rest + piece).split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self._replies[message["id"]] = message
            else:
                self._note(message["method"], message["params"])

    def _note(self, event, facts):
        if event == "Runtime.exceptionThrown":
            self.errors.append(facts["exceptionDetails"].get("exception", {}).get("description", str(facts)))
        elif event == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            self.errors.append(str(facts["args"]))
        elif event == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.errors.append(facts["entry"]["text"])
        elif event == "Network.requestWillBeSent" and self._is_elsewhere(facts["request"]["url"]):
            self.errors.append(f"asked the network for {facts['request']['url']}")
        elif event == "Page.javascriptDialogOpening":
            self.errors.append(f"dialog: {facts['message']}")
            # Without an answer the page would hang.
            message = {"id": 0, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
            os.write(self._write, json.dumps(message | {"sessionId": self._session}).encode() + b"\0")

    def _is_elsewhere(self, url):
        return url.startswith("http") and not (self.own and url.startswith(self.own))

    def open(self, path):
        """Open a file, or an address, and wait until the page says that it is ready."""
        local = str(path).startswith("http://127.0.0.1")
        self.own = str(path).split("?")[0] if local else None
        self.call("Page.navigate", url=path if local else Path(path).resolve().as_uri())
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def run(self, script):
        """The value of a JavaScript expression."""
        reply = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise BrowserError(reply["exceptionDetails"]["exception"].get("description", script))
        return reply["result"].get("value")

    def wait(self, condition):
        """Wait until an expression is true."""
        end = time.monotonic() + self._limit
        while not self.run(condition):
            if time.monotonic() > end:
                raise BrowserError(f"not within {self._limit} s: {condition}; errors: {self.errors}")
            time.sleep(0.05)

    def press(self, key, text=None):
        """Press and release a key: "Tab", "Enter", "ArrowDown" and the like."""
        codes = {"Tab": 9, "Enter": 13, "ArrowDown": 40, "PageDown": 34, "End": 35}
        facts = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        text = "\r" if key == "Enter" else text
        self.call("Input.dispatchKeyEvent", type="keyDown", **facts, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def look_like(self, width, height, dark=False):
        """Set the size of the window, and light or dark."""
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, part=None):
        """A PNG of what is seen, or of the element with an id."""
        clip = {}
        if part is not None:
            box = self.run(
                "(({x, y, width, height}) => ({x: x + scrollX, y: y + scrollY, width, height, scale: 1}))"
                f"(document.getElementById('{part}').getBoundingClientRect())"
            )
            clip = {"clip": box, "captureBeyondViewport": True}
        return base64.b64decode(self.call("Page.captureScreenshot", **clip)["data"])
