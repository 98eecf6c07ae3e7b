"""Figures on the pages are those of the logs in `results/`."""

import importlib
import json
import re

from docs.conftest import ROOT

CHOOSE, README = (
    (ROOT / "docs" / "choose.md").read_text(encoding="utf-8"),
    (ROOT / "README.md").read_text(encoding="utf-8"),
)


def table_rows(text, heading):
    """Rows of the table that starts with a heading: cells without markup, by the first one."""
    lines = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].replace("`", ""): row[1:] for row in cells}


def test_tox21():
    measured = json.loads((ROOT / "results/tox21/summary.json").read_text(encoding="utf-8"))
    for method in ("pauc", "ce", "mb"):
        assert f"{measured[method]['pauc']['mean']:.3f}" in README


def study_rows(title):
    """Rows of the table of a study on the page of results."""
    page = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    return table_rows(page[page.index(f"## {title}\n") :], "| method | test AUC")


def without_spread(cell):
    """Of `0.7565 (0.0012)` the mean."""
    return cell.split(" ")[0]


def test_molpcba():
    by_auc = study_rows("Table 1: AUC on ogbg-molpcba")
    made = by_auc | study_rows("Table 2: partial AUC on ogbg-molpcba")
    for name in ("pairwise pAUC", "MMB-pAUC", "SOPA-s", "CE"):
        assert without_spread(made[name][1]) in README
    for name in ("mAUC", "mAUC-CT, heads", "CE"):
        assert without_spread(by_auc[name][0]) in README


def test_speed_on_a_gpu():
    log = (ROOT / "results/molpcba/speed/fused.txt").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^(\S.*?\S)  +([\d. ]+)$", log, re.MULTILINE))
    *_, ms, _, _, _ = map(float, rows["CE"].split())  # then times CE, kernels, compilation
    assert f"{1024 / ms:.0f},000 molecules per second" in README
    for name in ("MMB-pAUC", "mAUC-CT, exact"):
        assert re.search(rf"{rows[name].split()[3]}\s+times", README), name


def test_cifar10():
    made = study_rows("Table 2: partial AUC on CIFAR-10 with rare positives")
    for name in ("pairwise pAUC", "MMB-pAUC", "CE"):
        assert without_spread(made[name][1]) in README


def test_transfer(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    transfer = importlib.import_module("transfer")
    page = (ROOT / "results/transfer/README.md").read_text(encoding="utf-8")
    assert page.endswith(
        "\n".join(transfer.tables(transfer.read([ROOT / "results/transfer/runs.jsonl"]))) + "\n"
    )
    measured = table_rows(page, "| data set | seeds | CE average")
    for name, shown in table_rows(CHOOSE, "| data set | cross-entropy").items():
        assert shown == [measured[name][place] for place in (1, 2, 3, 4, 5)], name
    scratch = importlib.import_module("from_scratch")
    lines = (ROOT / "results/transfer/from_scratch.jsonl").read_text(encoding="utf-8").splitlines()
    made = "\n".join(scratch.table([json.loads(line) for line in lines]))
    assert made in page
    mean = [float(number) / 1000 for number in made.splitlines()[-1].split("|")[4].split(",")]
    assert f"gains {mean[0]:.3f} in partial AUC\n  and {mean[1]:.3f} in average precision" in README
    gains = [float(cell.strip("*")) / 1000 for cell in measured["**mean**"][2:5]]
    shown = "gains {:.4f} in partial AUC, {:.4f} in average precision and {:.4f} in AUC".format(*gains)
    assert shown in README
    assert shown in page.replace("\n ", "")


def test_the_picture_on_the_first_page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = importlib.import_module("gains_figure")
    assert module.FIGURE.read_text(encoding="utf-8") == module.figure()
    gains = [first for name, (first, _) in module.gains().items() if name != "mean"]
    words = {9: "nine", 4: "four", 13: "thirteen"}
    won, lost = (words[sum(test)] for test in ([g > 0 for g in gains], [g < 0 for g in gains]))
    assert f"gains on {won} of {words[len(gains)]} data sets and\nloses on {lost}" in README


def test_promises():
    log = (ROOT / "results/metrics/promises.txt").read_text(encoding="utf-8")
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    shown = page[page.index("| validation rows |") :].split("\n\n")[0].splitlines()[2:]
    measured = json.loads(log.splitlines()[-1])
    assert len(shown) == len(measured)
    for line, case in zip(shown, measured, strict=True):
        rows, asked, confidence, *kept = (cell.strip() for cell in line.strip("|").split("|"))
        name = {"FPR": "max_fpr", "TPR": "min_tpr"}[asked.split()[0]]
        assert (int(rows), float(asked.split()[1]), float(confidence)) == (
            case["rows"],
            case[name],
            case["confidence"],
        )
        assert kept == [
            f"{case['kept'][key]:.3f}" if key in case["kept"] else ""
            for key in ("fixed", "selected", "plain")
        ]
        assert min(case["kept"]["fixed"], case["kept"]["selected"]) >= case["confidence"]
        assert case["kept"]["fixed"] - case["kept"]["selected"] < 0.0105


def test_estimator():
    measured, shown = (
        table_rows((ROOT / path).read_text(encoding="utf-8"), "| | rows to fit")
        for path in ("results/estimator/README.md", "docs/estimator.md")
    )
    assert measured
    assert shown == measured


def test_costs():
    log = (ROOT / "results/objectives/objectives.txt").read_text(encoding="utf-8").split("task-sampled")[0]

    def cost(name):
        columns = re.search(rf"^{name}\s+(.*)$", log, re.MULTILINE)[1]
        return re.findall(r"\(([\d.]+)x\)", columns)[2]  # m = 128

    for name, shown in table_rows(CHOOSE, "| | cost | state").items():
        assert name == "CompositionalAUC" or cost(name) == shown[0], name
    assert f"{cost('PartialAUC')} times" in README


def test_reliability():
    page = " ".join((ROOT / "docs/reliability.md").read_text(encoding="utf-8").split())
    faults, more, lost = (
        json.loads((ROOT / f"results/reliability/{name}.txt").read_text(encoding="utf-8").splitlines()[-1])
        for name in ("faults", "more_kills", "lost_processes")
    )
    counts = faults["kills"] + more["kills"]
    for name in ("orphans", "partial", "failed", "different", "left over"):
        assert not any(row[name] for row in counts), name
    signals = sum(row["kills"] for row in counts)
    assert f"sent {signals} signals" in page
    for row in counts:
        assert f"`{row['command'].removeprefix('mmb ')}`" in page.replace("`mmb ", "`")
    assert not any(row[name] for row in lost["lost"] for name in ("hang", "silent", "failed", "different"))
    assert f"killed {sum(row['kills'] for row in lost['lost'])} processes of groups" in page
    assert faults["flips"]["different"] == faults["mixed"] == 0
    assert f"Of {faults['flips']['flips']:,} single bits" in page
    assert f"Of {faults['pairs']} pairs" in page
    cases = (ROOT / "results/fuzz/bad_values.txt").read_text(encoding="utf-8").splitlines()[-1]
    assert json.loads(cases)["outcomes"]["failed"] == 0
    assert f"fed {json.loads(cases)['cases']:,} batches" in page


def test_metrics_and_solver():
    metrics = (ROOT / "results/metrics/metrics.txt").read_text(encoding="utf-8")
    mine, theirs = re.search(r"2% positive\s+evaluate \(all three\)\s+([\d.]+)\s+([\d.]+)", metrics).groups()
    assert f"{float(mine) / 1000:.2f} s, against {float(theirs) / 1000:.1f} s" in README
    solver = (
        (ROOT / "results/solver/block_scaling.txt").read_text(encoding="utf-8").split("processor time")[1]
    )
    for version in ("v1", "v2"):
        times = re.search(rf"^mmb {version}, 10 blocks (.*)$", solver, re.MULTILINE)[1].split()[:4]
        (shown,) = {f"{float(time):.1f} ms" for time in times}  # the same for every number of blocks
        assert f"{shown} ({version})" in README
        assert f"{shown} for {version}" in CHOOSE
    noise_free = solver.split("m=1,000, noise-free")[1]
    for blocks in ("all", "100", "10"):
        seconds = re.search(rf"^mmb v2, {blocks} blocks, compiled +([\d.]+)", noise_free, re.MULTILINE)[1]
        assert re.search(rf"on {blocks} blocks (reaches 1 % )?in {seconds} s", CHOOSE)


def test_verdicts():
    log = (ROOT / "results/report/verdicts.txt").read_text(encoding="utf-8")
    found = json.loads(log.splitlines()[-1])
    page = " ".join((ROOT / "docs" / "tools.md").read_text(encoding="utf-8").split())
    assert f"Of {found['of']} small runs" in page
    assert f"in {len(found['kinds'])} ways" in page
    assert f"advice are right for {found['right']} (" in page
    assert found["right"] >= 0.95 * found["of"]
