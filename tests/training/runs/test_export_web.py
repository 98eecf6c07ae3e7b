"""An exported model in a browser: the JavaScript of the page about it, run by onnxruntime-web in Chromium."""

import functools
import http.server
import json
import os
import re
import shutil
import sys
import threading
from pathlib import Path

import pytest
import torch

from mmb.training import Run, export_run, train
from report.browser import Browser, find_browser
from tiny_runs import tiny_recipe

ROOT = Path(__file__).parents[3]
# where `make test` puts it; elsewhere: npm install --prefix FOLDER onnxruntime-web
WEB = Path(os.environ.get("MMB_WEB", Path(sys.prefix, "web"))) / "node_modules/onnxruntime-web/dist"
NEEDED = ("ort.wasm.min.js", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
# Scripts run in order: the page says that it is ready after onnxruntime-web is there.
PAGE = """<!DOCTYPE html><html><head><meta charset="utf-8"><link rel="icon" href="data:,">
<script src="ort.wasm.min.js"></script>
<script>document.documentElement.dataset.ready = "yes"</script></head></html>"""

pytestmark = [
    pytest.mark.skipif(find_browser() is None, reason="there is no Chromium"),
    pytest.mark.skipif(not WEB.is_dir(), reason=f"npm install --prefix {WEB.parents[2]} onnxruntime-web"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder to serve: onnxruntime-web, an exported model, and an empty page."""
    folder = tmp_path_factory.mktemp("web")
    run = Run.create(folder / "run", tiny_recipe("ce", data={"features": 3, "tasks": 2}))
    train(run)
    export_run(run, folder / "exported")
    for name in NEEDED:
        shutil.copy(WEB / name, folder)
    (folder / "index.html").write_text(PAGE)
    return folder


@pytest.fixture(scope="module")
def browser(folder):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with Browser() as browser:
        browser.open(f"http://127.0.0.1:{server.server_port}/")
        yield browser
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def session(folder):
    onnxruntime = pytest.importorskip("onnxruntime")
    return onnxruntime.InferenceSession(folder / "exported" / "model.onnx")


def test_the_example_of_the_page(browser, folder, session):
    (script,) = re.findall(r"```js\n(.*?)```", (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8"), re.S)
    shown = browser.run(
        f"(async () => {{ const printed = [], console = {{ log: (...words) => printed.push(words) }};"
        f"{script}; return printed; }})()"
    )
    about = json.loads((folder / "exported" / "predictor.json").read_text())
    row = {"x0": 0.3, "x1": -1.2, "x2": None}  # that of the page
    inputs = torch.tensor(
        [
            [
                ((c["fill"] if row[c["name"]] is None else row[c["name"]]) - c["mean"]) / c["scale"]
                for c in about["encoder"]["columns"]
            ]
        ]
    )
    logits, probabilities = session.run(["logits", "probabilities"], {"inputs": inputs.numpy()})
    assert [name for name, _, _ in shown] == about["task_names"]
    assert [chance for _, chance, _ in shown] == pytest.approx(probabilities[0].tolist(), abs=1e-5)
    assert [alarm for _, _, alarm in shown] == (logits[0] > about["thresholds"]["0.1"]).tolist()
    assert not browser.errors


def test_many_rows_as_in_python(browser, session):
    inputs = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    found = browser.run(
        "(async () => { const session = await ort.InferenceSession.create('exported/model.onnx');"
        f"const values = Float32Array.from({inputs.flatten().tolist()});"
        "const found = await session.run({ inputs: new ort.Tensor('float32', values, [40, 3]) });"
        "return Object.fromEntries(Object.entries(found).map(([k, v]) => [k, [v.dims, [...v.data]]])); })()"
    )
    assert set(found) == {"logits", "probabilities"}
    for name, expected in zip(found, session.run(list(found), {"inputs": inputs.numpy()}), strict=True):
        dims, values = found[name]
        assert dims == [40, 2]
        assert values == pytest.approx(expected.flatten().tolist(), abs=1e-5)
    assert not browser.errors
