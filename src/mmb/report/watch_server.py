"""A page that follows runs, served to this machine alone, to those who have its token."""

import json
import secrets
import threading
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from mmb.report.live import LiveRuns
from mmb.report.page import filled

_SCRIPTS = ("dom.js", "charts.js", "watch.js")


class WatchServer(ThreadingHTTPServer):
    """Serves the page at `address` and its data, while `serve_forever` runs.

    Only this machine reaches it. A request needs the token of the address, and must be made to the address
    itself: a page elsewhere that lets its name lead here is refused.

    Args:
        paths: Folders of runs, or with runs in them.
        port: Port on the loopback interface; 0 takes any free one.

    Raises:
        RunError: If there is no run in the folders.
        OSError: If the port is taken.
    """

    daemon_threads = True

    def __init__(self, paths: Sequence[Path], port: int = 0) -> None:
        self.runs = LiveRuns(paths)
        self.reading = threading.Lock()
        self.token = secrets.token_urlsafe(16)
        super().__init__(("127.0.0.1", port), _Handler)
        self.address = f"http://127.0.0.1:{self.server_port}/?token={self.token}"

    def content(self) -> str:
        """The data of the page now, as JSON."""
        with self.reading:
            return json.dumps(self.runs.content(), allow_nan=False)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a browser that went away."""


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    timeout = 10  # seconds that a connection may be silent

    def do_GET(self) -> None:
        """Answer for the page and its data."""
        asked = urlsplit(self.path)
        given = parse_qs(asked.query).get("token", [""])[0]
        hosts = [f"{name}:{self.server.server_port}" for name in ("127.0.0.1", "localhost")]
        if self.headers.get("Host") not in hosts or not secrets.compare_digest(
            given.encode(), self.server.token.encode()
        ):
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", "The address lacks its token: see `mmb watch`.")
        elif asked.path == "/":
            policy = "; connect-src 'self'; img-src data:"
            self._answer(HTTPStatus.OK, "text/html", filled("watch.html", "mmb watch", _SCRIPTS, policy, {}))
        elif asked.path == "/data":
            try:
                self._answer(HTTPStatus.OK, "application/json", self.server.content())
            except (
                Exception
            ) as error:  # a run was moved or deleted; the page shows the message, and asks again
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", str(error))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "There is no such page.")

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        with suppress(OSError):  # the browser went away
            self.send_response(status)
            for name, value in (
                ("Content-Type", f"{kind}; charset=utf-8"),
                ("Content-Length", str(len(body))),
                ("Cache-Control", "no-store"),
                ("Referrer-Policy", "no-referrer"),
                ("X-Content-Type-Options", "nosniff"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing about requests."""
