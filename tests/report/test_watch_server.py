"""The page that follows runs: who gets it, and what a browser shows."""

import json
import threading
import urllib.error
import urllib.request
from importlib import resources

import pytest

from mmb.report import WatchServer
from mmb.training import Run
from mmb.training.runs.log import RunLog
from report.browser import Browser, find_browser
from report.conftest import ODD
from tiny_runs import tiny_recipe


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "runs" / "ce", tiny_recipe("ce"))


@pytest.fixture
def server(run):
    with WatchServer([run.path.parent]) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def get(address, **headers):
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


def test_only_those_with_the_token_are_answered(server):
    assert server.server_address[0] == "127.0.0.1"
    root = server.address.split("?")[0]
    for address in (root, f"{root}data", f"{root}?token=", f"{root}data?token={server.token[:-1]}"):
        status, text, _ = get(address)
        assert status == 403
        assert "token" in text
        assert "recipe" not in text
    assert get(server.address)[0] == 200
    assert get(f"{root}recipe.yaml?token={server.token}")[0] == 404
    assert get(f"{root}../../etc/passwd?token={server.token}")[0] == 404
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(server.address, data=b"x", timeout=10)


def test_other_names_that_lead_here_are_refused(server):
    assert get(server.address, Host="evil.example")[0] == 403
    assert get(server.address, Host=f"evil.example:{server.server_port}")[0] == 403
    assert get(server.address, Host=f"localhost:{server.server_port}")[0] == 200


def test_answers_are_not_kept(server):
    status, text, headers = get(server.address.replace("/?", "/data?"))
    assert status == 200
    assert json.loads(text)["runs"][0]["state"] == "waiting"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_runs_that_went_away_are_an_error_that_passes(server, run):
    run.path.rename(run.path.parent.parent / "elsewhere")
    data = server.address.replace("/?", "/data?")
    status, text, _ = get(data)
    assert status == 500
    assert "no run" in text
    (run.path.parent.parent / "elsewhere").rename(run.path)
    assert get(data)[0] == 200


@pytest.mark.skipif(find_browser() is None, reason="no chromium or google-chrome on PATH")
def test_a_browser_follows_a_run(server, run):
    other = Run.create(run.path.parent / "auc", tiny_recipe("auc", note=ODD))
    with Browser() as browser, RunLog(run.path, 0, 0, tensorboard=False) as log:
        browser.look_like(390, 844)
        browser.open(server.address)
        cells = (
            "[...byId('run-table').tBodies[0].rows].map(row => [...row.cells].map(one => one.textContent))"
        )
        assert [row[2] for row in browser.run(cells)] == ["waiting", "waiting"]
        log.write("start", 0, {"steps": 40})
        for step, value in ((0, 0.5), (10, 0.7)):
            log.write("valid", step, {"pauc": value, "auc": value, "ap": 0.1, "seconds": step / 10})
        browser.wait("document.querySelectorAll('#curve-chart path').length > 0")
        row = browser.run(cells)[0]
        assert row[:4] == ["CE, seed 0", "0.700", "3 s", "10 of 40"]
        assert row[4].startswith("Working so far: validation pAUC from 0.500 to 0.700")
        assert "left" in browser.run("byId('answer-what').textContent")
        assert browser.run("drawn.get('curve-chart')().lines[0].y") == [0.5, 0.7]
        assert browser.run("document.documentElement.scrollWidth") <= 390
        best = "byId('run-table').tBodies[0].rows[0].cells[1]"
        assert browser.run(f"{best}.getBoundingClientRect().right") <= 390
        axe = pytest.importorskip("axe_core_python", reason="pip install axe-core-python")
        browser.run((resources.files(axe) / "axe.min.js").read_text(encoding="utf-8") + ";0")
        found = browser.run(
            "axe.run(document, { resultTypes: ['violations'] }).then((all) => all.violations)"
        )
        assert [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found] == []
        assert browser.errors == []
    assert not (other.path / "metrics.jsonl").exists()  # nothing was written
