"""Figures on the pages are those of the logs in `results/`."""

import ast
import importlib
import json
import re
import statistics

import pytest

from docs.conftest import ROOT
from mmb.training import SoupSettings, TableStudy
from mmb.training.loop import branch_average
from mmb.training.runs.log import read_log, validation_curve

CHOOSE, INDEX, TRAINING, OBJECTIVES, HYPERGRADIENTS, README, RESULTS = (
    (ROOT / page).read_text(encoding="utf-8")
    for page in (
        "docs/choose.md",
        "docs/index.md",
        "docs/training.md",
        "docs/reference/auc.md",
        "docs/reference/hypergradients.md",
        "README.md",
        "results/README.md",
    )
)
SUMMARY = RESULTS.partition("<!-- What follows is made")[0]


def table_rows(text, heading):
    """Rows of the table that starts with a heading: cells without markup, by the first one."""
    lines = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].replace("`", ""): row[1:] for row in cells}


def gain_cells(gains, digits):
    """Gains in partial AUC, average precision and AUC, as cells of the tables that sum them up."""
    return " | ".join(f"{gain:.{digits}f}" for gain in gains) + " |"


def test_tox21():
    measured = json.loads((ROOT / "results/tox21/summary.json").read_text(encoding="utf-8"))
    for method in ("pauc", "ce", "mb"):
        assert f"{measured[method]['pauc']['mean']:.3f}" in SUMMARY


def study_rows(title):
    """Rows of the table of a study on the page of results."""
    return table_rows(RESULTS[RESULTS.index(f"## {title}\n") :], "| method | test AUC")


def without_spread(cell):
    """Of `0.7565 (0.0012)` the mean."""
    return cell.split(" ")[0]


def test_molpcba():
    by_auc = study_rows("Table 1: AUC on ogbg-molpcba")
    made = by_auc | study_rows("Table 2: partial AUC on ogbg-molpcba")
    for name in ("pairwise pAUC", "MMB-pAUC", "SOPA-s", "CE"):
        assert without_spread(made[name][1]) in SUMMARY
    for name in ("mAUC", "mAUC-CT, heads", "CE"):
        assert without_spread(by_auc[name][0]) in SUMMARY


def test_speed_on_a_gpu():
    log = (ROOT / "results/molpcba/speed/fused.txt").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^(\S.*?\S)  +([\d. ]+)$", log, re.MULTILINE))
    *_, ms, _, _, _ = map(float, rows["CE"].split())  # then times CE, kernels, compilation
    assert f"{1024 / ms:.0f},000 molecules per second" in SUMMARY
    for name in ("MMB-pAUC", "mAUC-CT, exact"):
        assert re.search(rf"{rows[name].split()[3]}\s+times", SUMMARY), name


def test_cifar10():
    made = study_rows("Table 2: partial AUC on CIFAR-10 with rare positives")
    for name in ("pairwise pAUC", "MMB-pAUC", "CE"):
        assert without_spread(made[name][1]) in SUMMARY


def test_the_papers_protocol():
    """Copies, curves and rungs on the page are those of the logs."""
    results = ROOT / "results"
    page = (results / "molpcba-paper/README.md").read_text(encoding="utf-8")
    log = (results / "molpcba-paper/copies.txt").read_text(encoding="utf-8").splitlines()[-1]
    copies = table_rows(page, "| copies, inner step")
    for row in json.loads(log)["rows"]:
        name = row["copies, inner step"].removesuffix(", seed 0")
        assert copies[name] == [row[f"{part} {of}"] for part in ("valid", "test") for of in "wuf"]
    table = "molpcba-paper-perceptron/table1"
    paths = [f"{table}/{row}/seed-0" for row in ("auc", "auc-ct", "auc-ct-offsets")]
    paths += [f"molpcba-paper/inner/{step}" for step in (0.5, 0.9)]
    curves = table_rows(page, "| validation AUC after steps").values()
    for path, shown in zip(paths, curves, strict=True):
        points = dict(validation_curve(read_log(results / path), "auc"))
        assert shown == [f"{points[step]:.4f}" for step in (685, 1370, 2055, 2740, 3425)]
    curves = table_rows(page, "| GIN, validation AUC after steps").values()
    for row, shown in zip(("auc", "auc-ct"), curves, strict=True):
        log = read_log(results / f"molpcba-paper-short/table1/{row}/seed-0")
        points = dict(validation_curve(log, "auc"))
        assert shown == [f"{points[step]:.4f}" for step in range(548, 3289, 548)]
    made = study_rows("Table 1 by the paper's protocol, 25 epochs instead of 100: AUC on ogbg-molpcba")
    for name, shown in table_rows(page, "| method | paper: GIN").items():
        assert name not in made or shown[1:3] == made[name][:2]
    for name, heading in (("auc", "| mAUC |"), ("ce", "| CE |")):
        study = TableStudy.read(ROOT / "recipes/reproduce", f"molpcba-ladder-perceptron/{name}")
        before = None
        shown = table_rows(page, f"{heading} test AUC")
        logs = {row: results / study.name / row / "seed-0/result.json" for row in study.recipes}
        assert len(shown) == sum(log.exists() for log in logs.values())
        for row, log in logs.items():
            if log.exists():
                result = json.loads(log.read_text(encoding="utf-8"))
                now = [round(result["test"][metric], 4) for metric in ("auc", "pauc")]
                gains = [f"{a - b:+.4f}" for a, b in zip(now, before, strict=True)] if before else ["", ""]
                cells = shown[study.title_of(row, result["method"])]
                assert cells[:4] == [f"{now[0]:.4f}", gains[0], f"{now[1]:.4f}", gains[1]]
                before = now


def test_transfer(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    transfer = importlib.import_module("transfer")
    page = (ROOT / "results/transfer/README.md").read_text(encoding="utf-8")

    def tables(*logs, plans=False):
        records = transfer.read([ROOT / "results/transfer" / log for log in logs])
        return "\n".join(transfer.tables(records, plans)) + "\n"

    assert page.endswith(tables("default.jsonl", "gpu.jsonl"))
    rivals = (ROOT / "results/transfer/plans.md").read_text(encoding="utf-8")
    assert rivals.endswith(tables("runs.jsonl", "gpu_plans.jsonl", plans=True))
    for log in ("keel", "unseen", "molecules"):
        own = (ROOT / f"results/transfer/{log}.md").read_text(encoding="utf-8")
        assert own.endswith(tables(f"{log}.jsonl"))
        against = transfer.Differences(transfer.read([ROOT / f"results/transfer/{log}.jsonl"]))
        gained = [
            statistics.fmean(against.mean(name, "soup", metric) for name in against.sets)
            for metric in transfer.METRICS
        ]
        for text in (own, page):
            shown = "{:.4f} in partial AUC, {:.4f} in average precision and {:.4f} in AUC".format(*gained)
            assert shown in " ".join(text.split()), log
        assert gain_cells(gained, 4) in SUMMARY, log
        assert log == "keel" or gain_cells(gained, 4) in README, log
    earlier = (ROOT / "results/transfer/fresh.md").read_text(encoding="utf-8")
    assert earlier.endswith(tables("fresh.jsonl", plans=True))
    measured = table_rows(page, "| data set | seeds | CE average")
    for name, shown in table_rows(CHOOSE, "| data set | cross-entropy").items():
        assert shown == [measured[name][place] for place in (1, 2, 3, 4, 5)], name
    scratch = importlib.import_module("from_scratch")
    records = scratch.read([ROOT / "results/transfer/from_scratch.jsonl"])
    made = "\n".join(scratch.table(scratch.METHODS, records))
    assert made in page
    mean = [float(number) / 1000 for number in made.splitlines()[-1].split("|")[4].split(",")]
    assert all(gain_cells(mean, 3) in text for text in (README, SUMMARY))
    small_sets = table_rows(tables("default.jsonl"), "| data set | seeds | CE average")
    means = [
        [float(cell.strip("*")) / 1000 for cell in rows["**mean**"][2:5]] for rows in (small_sets, measured)
    ]
    gains = means[0]
    assert "mean of sixteen is {:.4f}, {:.4f} and {:.4f}".format(*means[1]) in " ".join(page.split())
    shown = "gains {:.4f} in partial AUC, {:.4f} in average precision and {:.4f} in AUC".format(*gains)
    assert shown in page.replace("\n ", "")
    assert all(gain_cells(gains, 4) in text for text in (README, SUMMARY))
    for name in ("CIFAR-10", "CIFAR-10, rare", "molpcba"):
        found = [float(cell.split()[0]) / 1000 for cell in measured[name][2:5]]
        assert gain_cells(found, 4) in SUMMARY
        assert name == "molpcba" or gain_cells(found, 4) in README


def test_ranges(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    comparison = importlib.import_module("inputs").COMPARISONS["tables"]
    page = (ROOT / "results/tables/README.md").read_text(encoding="utf-8")
    made = list(comparison.tables())
    assert page.endswith("\n\n".join(made) + "\n")
    *_, unseen = (one.splitlines()[-1].split("|")[4] for one in made)
    gains = [float(number) / 1000 for number in unseen.split(",")]
    shown = "{:.3f} in partial AUC, {:.3f} in average precision and {:.3f} in AUC".format(*gains)
    assert all(shown in " ".join(text.split()) for text in (page, TRAINING))
    assert all(gain_cells(gains, 3) in text for text in (README, SUMMARY))
    assert f"gain {gains[0]:.3f} and " in " ".join(README.split())


def test_molecules(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    comparisons = importlib.import_module("inputs").COMPARISONS
    page = (ROOT / "results/molecules/README.md").read_text(encoding="utf-8")
    made = [table for name in ("molecules", "graphs") for table in comparisons[name].tables()]
    assert page.endswith("\n\n".join(made) + "\n")
    for table in made:
        gains = [float(number) / 1000 for number in table.splitlines()[-1].split("|")[4].split(",")]
        shown = "{:.3f} in partial AUC, {:.3f} in average precision and {:.3f} in AUC".format(*gains)
        assert all(shown in " ".join(text.split()) for text in (page, TRAINING))
        assert gain_cells(gains, 3) in SUMMARY
        assert "not used to choose" not in table or gain_cells(gains, 3) in README


def test_how_far_to_go_from_the_start(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = importlib.import_module("halfway")
    page = (ROOT / "results/transfer/halfway.md").read_text(encoding="utf-8")
    assert page.endswith("\n".join(module.table()) + "\n")
    records = [json.loads(line) for line in module.LOG.read_text().splitlines()]
    limits = (branch_average._WHOLE, branch_average._HALFWAY)
    rows = module.gains(records, "uniform", ("pauc", "auc"), limits)
    gained = [statistics.fmean(column) / 1000 for column in zip(*rows, strict=True)]
    shown = "{:.4f} in partial AUC, {:.4f} in average precision and {:.4f} in AUC".format(*gained)
    transfer = (ROOT / "results/transfer/README.md").read_text(encoding="utf-8")
    assert f"the rule of the default gains {shown}" in " ".join(transfer.split())
    grouped = {name: group for group, sets in module.GROUPS.items() for name in sets}
    for by_group in (False, True):
        rows = module.held_out(records, grouped, by_group).values()
        gained = [statistics.fmean(column) / 1000 for column in zip(*rows, strict=True)]
        assert "{:.4f}, {:.4f} and {:.4f}".format(*gained) in " ".join(transfer.split())


@pytest.mark.parametrize("log", ["alone", "alone_unseen"])
def test_objectives_alone(monkeypatch, log):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = importlib.import_module("alone")
    folder = ROOT / "results/transfer"
    made = "\n".join(module.tables(module.read([folder / f"{log}.jsonl"])))
    assert (folder / f"{log}.txt").read_text(encoding="utf-8") == made + "\n"


def test_where_the_soup_gains(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = importlib.import_module("where_it_gains")
    page = (ROOT / "results/transfer/where.md").read_text(encoding="utf-8")
    assert page.endswith("\n".join(module.page()) + "\n")
    text = " ".join(page.split())
    found, runs = module.sets(), module.records()
    assert f"sorts the {len(found)} data sets with small networks, in {len(runs)} runs" in text
    many = {name: one for name, one in found.items() if one.tasks >= 10 and one.level < 0.9}
    gains = [statistics.fmean(column) for column in zip(*(one.gains for one in many.values()), strict=True)]
    assert "gains {:.4f} in partial AUC, {:.4f} in average precision and {:.4f} in AUC".format(*gains) in text
    rest = statistics.fmean(one.gains[0] for name, one in many.items() if name != "MUV")
    assert max(many, key=lambda name: many[name].gains[0]) == "MUV"
    assert f"without it, the gain in partial AUC is {rest:.4f}" in text
    assert f"On the {len(found) - len(many)} other data sets" in text
    cells = dict(line.strip("| ").split(" | ", 1) for line in module.tables(found) if line.startswith("| "))
    rate, positives = (cells[module.FACTS[fact][0]].split(" | ")[0] for fact in ("rate", "positives"))
    assert f"correlations with the gain are {float(rate)} and {float(positives)}" in text


def test_objectives_beside_those_of_libauc(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = importlib.import_module("peer_objectives")
    page = (ROOT / "results/peers/README.md").read_text(encoding="utf-8")
    records = module.read(module.LOG)
    assert page.endswith("\n\n".join(module.tables(records)) + "\n")
    text = " ".join(page.split())
    wide = list(module.table(module.chosen(module.read(module.LOG.with_name("with_ranges.jsonl")))))
    assert all(f"\n  {line}\n" in page for line in wide)
    assert f"a mean partial AUC of {wide[2].split('|')[2].strip()}" in text
    ours, peer = (
        module.gains(module.chosen(module.documented(records)), title)["pauc"]
        for title in ("PartialAUC", "LibAUC pAUC, SOPA")
    )
    for mean_of in (statistics.fmean, statistics.median):
        for found in (ours, peer):
            assert f"{mean_of(found.values()) / 1000:.4f}" in text
    rest = [
        statistics.fmean(gain for name, gain in found.items() if name != "ring") / 1000
        for found in (peer, ours)
    ]
    assert "the means are {:.4f} and {:.4f}".format(*rest) in text
    assert f"gains {peer['ring'] / 1000:.3f}, where `PartialAUC` gains {ours['ring'] / 1000:.3f}" in text
    assert f"on the most tables: {sum(gain > 0 for gain in ours.values())} of {len(ours)}" in text


def test_when_it_is_too_early_to_branch(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = importlib.import_module("still_rising")
    page = (ROOT / "results/transfer/still_rising.md").read_text(encoding="utf-8")
    records = module.read([module.LOG])
    assert page.endswith("## All\n\n" + "\n".join(module.table(records)) + "\n")
    looking = module.looking_table(module.read([module.LOG.with_name("still_gaining.jsonl")]))
    assert "\n".join(looking) + "\n\n## 100 steps" in page
    limit = SoupSettings().still_rising
    gained = module.gains(records, limit)
    shown = "{:.4f} in partial AUC, {:.4f} in average precision and {:.4f} in AUC".format(*gained)
    transfer = (ROOT / "results/transfer/README.md").read_text(encoding="utf-8")
    assert all(shown in " ".join(text.split()) for text in (page, transfer))
    assert all(gain_cells(gained, 4) in text for text in (README, SUMMARY))


def test_the_picture_on_the_first_page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = importlib.import_module("gains_figure")
    assert module.FIGURE.read_text(encoding="utf-8") == module.figure()
    (partial, _), (precision, _) = module.gains()["mean"]
    gains = f"gains {partial / 1000:.3f} in partial AUC and {precision / 1000:.3f} in average precision"
    assert all(gains in text.replace("\n", " ") for text in (README, INDEX))


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
    log = (ROOT / "results/estimator/unseen.txt").read_text(encoding="utf-8").splitlines()[-1]
    found = json.loads(log)["found"]
    pages = [
        (ROOT / path).read_text(encoding="utf-8")
        for path in ("results/estimator/README.md", "docs/estimator.md")
    ]
    rows = [table_rows(page, "| | rows to fit, tasks | soup | ce | boosting") for page in pages]
    assert rows[0] == rows[1]
    assert len(rows[0]) == len(found)
    partial = "partial AUC up to 0.1"
    methods = ("soup", "ce", "boosting", "forest")
    for name, seeds in found.items():
        values = [statistics.mean(seed[method][partial] for seed in seeds) for method in methods]
        assert rows[0][name.removeprefix("KEEL ")][1:5] == [f"{value:.3f}" for value in values]
    seeds = [seed for seeds in found.values() for seed in seeds]

    def gain(metric, rival):
        return statistics.mean(seed["soup"][metric] - seed[rival][metric] for seed in seeds)

    for metric, text in ((partial, "partial AUC"), ("average precision", "average precision")):
        assert re.search(rf"{gain(metric, 'ce'):.4f} \([\d.]+\)\s+in {text}", pages[0]), metric
    over_ce = f"| {gain(partial, 'ce'):.3f} | {gain('average precision', 'ce'):.3f} | |"
    over_boosting = f"| {gain(partial, 'boosting'):.3f} | | {gain('AUC', 'boosting'):.3f} |"
    over_forest = f"| {gain(partial, 'forest'):.3f} | | {gain('AUC', 'forest'):.3f} |"
    assert all(over_ce in text for text in (README, SUMMARY))
    assert all(cells in SUMMARY for cells in (over_boosting, over_forest))


def test_trees_of_the_estimator():
    alone, with_trees = (
        json.loads((ROOT / f"results/estimator/{log}.txt").read_text(encoding="utf-8").splitlines()[-1])
        for log in ("unseen", "unseen_with_trees")
    )
    metrics = ("partial AUC up to 0.1", "average precision", "AUC")
    page = " ".join((ROOT / "results/estimator/README.md").read_text(encoding="utf-8").split())
    for rival in ("boosting", "forest", "soup"):
        gained = {
            name: [
                statistics.mean(
                    mine["soup"][metric] - theirs[rival][metric]
                    for mine, theirs in zip(seeds, alone["found"][name], strict=True)
                )
                for metric in metrics
            ]
            for name, seeds in with_trees["found"].items()
        }
        means = [statistics.mean(column) for column in zip(*gained.values(), strict=True)]
        count = sum(gains[0] > 0 for gains in gained.values())
        assert all(gain_cells(means, 3) in text for text in (README, SUMMARY)), rival
        assert all(f"{count} gain" in text for text in (README, SUMMARY)), rival
    for gain, text in zip(means, ("partial AUC", "average precision", "AUC"), strict=True):
        assert re.search(rf"{gain:.4f} \([\d.]+\) in {text}", page), text


def test_costs():
    log = (ROOT / "results/objectives/objectives.txt").read_text(encoding="utf-8").split("task-sampled")[0]

    def cost(name):
        columns = re.search(rf"^{name}\s+(.*)$", log, re.MULTILINE)[1]
        return re.findall(r"\(([\d.]+)x\)", columns)[2]  # m = 128

    for name, shown in table_rows(OBJECTIVES, "| | cost | state").items():
        assert name == "CompositionalAUC" or cost(name) == shown[0], name
    assert all(f"{cost('PartialAUC')} times" in text for text in (README, SUMMARY))


def test_two_way_peers():
    log = (ROOT / "results/objectives/two_way.txt").read_text(encoding="utf-8")
    found = json.loads(log.splitlines()[-1])["found"]
    pairs = ("STACO", "LibAUC tpAUC_CVaR (STACO)"), ("TwoWayPartialAUC", "LibAUC tpAUC_KL (SOTAs)")
    gains = {
        name: [
            [one - other for one, other in zip(rows[ours], rows[theirs], strict=True)]
            for ours, theirs in pairs
        ]
        for name, rows in found.items()
    }
    means = {name: sorted(abs(statistics.mean(gain)) for gain in both) for name, both in gains.items()}
    theirs, mine, _ = (" and ".join(f"{gain:.3f}" for gain in both) for both in means.values())
    assert f"theirs are {theirs} better, on one ours are {mine} better" in SUMMARY
    lost, won, even = gains.values()
    assert all(statistics.mean(gain) < 0 for gain in lost)
    assert all(statistics.mean(gain) > 0 for gain in won)
    assert all(abs(statistics.mean(gain)) < statistics.stdev(gain) / len(gain) ** 0.5 for gain in even)


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
    every = re.search(r"2% positive\s+evaluate \(all\)\s+([\d.]+)", metrics)[1]
    for shown in (
        f"{float(mine) / 1000:.2f} s, against {float(theirs) / 1000:.1f} s",
        f"all fifteen metrics {float(every) / 1000:.2f} s",
    ):
        assert all(shown in text for text in (README, SUMMARY))
    steps, solver = (
        (ROOT / f"results/solver/{name}.txt").read_text(encoding="utf-8").split("processor time")[1]
        for name in ("block_steps", "block_scaling")
    )
    for version in ("v1", "v2"):
        times = re.search(rf"^mmb {version}, 10 blocks (.*)$", steps, re.MULTILINE)[1].split()[:4]
        (shown,) = {f"{float(time):.1f} ms" for time in times}  # the same for every number of blocks
        assert all(f"{shown} ({version})" in text for text in (README, SUMMARY))
        assert f"{shown} for {version}" in HYPERGRADIENTS
    noise_free = solver.split("m=1,000, noise-free")[1]
    for blocks in ("all", "100", "10"):
        seconds = re.search(rf"^mmb v2, {blocks} blocks, compiled +([\d.]+)", noise_free, re.MULTILINE)[1]
        assert re.search(
            rf"on {blocks} blocks (reaches 1% )?in {seconds} s", " ".join(HYPERGRADIENTS.split())
        )


def test_bilevel_quadratics():
    log = (ROOT / "results/solver/bilevel_quadratics.txt").read_text(encoding="utf-8")
    found = json.loads(log.splitlines()[-1])["methods"]
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    shown = table_rows(page, "| | 25 % | 50 % | 100 % | calls to 10 % |")
    assert len(shown) == len(found)
    expected = sorted(
        [
            *(f"{row['gradient'][share]:.3f}" for share in ("25%", "50%", "100%")),
            "-" if row["calls_to_goal"] is None else f"{row['calls_to_goal']:,}",
        ]
        for row in found.values()
    )
    assert sorted(cells for cells in shown.values()) == expected
    curves = [found[name]["curve"] for name in ("mmb QuadraticSGD, SAGA", "SABA")]
    below = [ours < theirs for ours, theirs in zip(*curves, strict=True)]
    assert f"at {sum(below)} of {len(below)} looks" in " ".join(page.split())


def test_auto():
    log = (ROOT / "results/solver/auto.txt").read_text(encoding="utf-8")
    rows = json.loads(log.splitlines()[-1])["rows"]
    page, reference = (
        " ".join((ROOT / name).read_text(encoding="utf-8").split())
        for name in ("benchmarks/README.md", "docs/reference/solver.md")
    )
    assert all(row["reached"] == 3 for row in rows)
    assert f"all {len(rows)} problems" in page
    assert f"On {len(rows)} problems" in reference
    most = f"at most {max(row['ratio'] or 0 for row in rows):.2f} times the steps"
    assert all(most in text for text in (page, reference, README, SUMMARY))
    costs = [row["updates"] * (row["ratio"] or 0.5) for row in rows]
    assert f"{sum(cost <= 3 for cost in costs)} problems are within three" in page
    assert f"need {max(costs):.2f} times as many" in page
    assert f"On {sum(row['updates'] > 1 for row in rows)} problems" in page
    assert f"On {sum(row['ratio'] is None for row in rows)} problems no point" in page
    assert f"tried on {sum(row['points'] == 50 for row in rows)} problems" in page


def test_verdicts():
    log = (ROOT / "results/report/verdicts.txt").read_text(encoding="utf-8")
    found = json.loads(log.splitlines()[-1])
    page = " ".join((ROOT / "docs" / "tools.md").read_text(encoding="utf-8").split())
    assert f"Of {found['of']} small runs" in page
    assert f"in {len(found['kinds'])} ways" in page
    assert f"advice are right for {found['right']} (" in page
    assert found["right"] >= 0.95 * found["of"]


def test_gallery():
    log = (ROOT / "results/solver/gallery.txt").read_text(encoding="utf-8")
    found = {}
    for name, part in re.findall(r"examples/(\w+)\.py\n(.*?)\n\n", log + "\n", re.DOTALL):
        lines = (line.split(": ", 1) for line in part.splitlines() if not line.startswith("auto"))
        found[name] = {what: ast.literal_eval(numbers) for what, numbers in lines}
        assert found[name]["seconds in all"] < 60
    robust, penalty, fair, wrong = (
        found[name]
        for name in ("robust_regression", "penalty_per_task", "fair_classification", "data_reweighting")
    )
    worst = fair["wrong test images of the worst digit"]
    quoted = {
        "robust_regression": [
            *(f"{number:.2g}" for number in robust["objective"].values()),
            *(f"{robust['worst group'][name]:.2f}" for name in ("mmb.auto", "least squares")),
        ],
        "penalty_per_task": [
            *(f"{number:.3f}" for number in penalty["validation loss"].values()),
            *(f"{number:.1%}" for number in penalty["wrong test images"].values()),
        ],
        "fair_classification": [
            *(f"{number:.0%}" for number in worst.values()),
            f"{fair['training loss of the worst digit']['mmb.auto']:.2f}",
            f"{fair['wrong test images']['mmb.auto']:.0%}",
        ],
        "data_reweighting": [
            *(f"{number:.0%}" for number in wrong["recognized test images"].values()),
            *(f"{number:.3f}" for number in wrong["loss on right rows"].values()),
        ],
    }
    for name, numbers in quoted.items():
        page = (ROOT / "docs" / "gallery" / f"{name}.md").read_text(encoding="utf-8")
        assert [number for number in numbers if number not in page] == []


def test_large_tables():
    logs = (ROOT / "results/tables" / f"{name}_million.txt" for name in ("two", "twenty"))
    two, twenty = (json.loads(log.read_text(encoding="utf-8").splitlines()[-1])["results"] for log in logs)
    rows = table_rows((ROOT / "docs" / "data.md").read_text(encoding="utf-8"), "| | 2 million rows |")

    def cells(part, of=(two, twenty), seconds=True):
        return [
            (f"{one[part]['lap'][1]:.1f} s, " if seconds else "") + f"{one[part]['own'] / 1e3:.1f} GB"
            for one in of
        ]

    assert list(rows.values()) == [
        [*cells("polars", [two]), ""],
        cells("prepare"),
        cells("steps", seconds=False),
        cells("predict", seconds=False),
    ]
    assert two["prepare"]["lap"][0] <= 4 * two["polars"]["lap"][0]
    assert two["prepare"]["peak"] <= 1500
    assert max(one["predict"]["peak"] for one in (two, twenty)) <= 1000


def test_slopes_with_and_without_storm():
    log = (ROOT / "results/solver/storm_slope.txt").read_text(encoding="utf-8")
    slopes = json.loads(log.splitlines()[-1])["slopes"]
    page = (ROOT / "docs" / "reference" / "solver.md").read_text(encoding="utf-8")
    for number in slopes.values():
        assert f"varepsilon^{{{number:.1f}}}" in page
