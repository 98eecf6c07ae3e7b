"""What is left when commands are killed, files damaged, and two commands write to the same place?

Kills: each command is started, gets a signal at a random moment, and is repeated until it ends. Counted are
processes that outlive their command, files that a reader finds in part, results that differ from those of an
undisturbed command, and what is left on the disk at the end. Flips: one random bit in a random file of a
finished run; counted are flips that change what is read from the run without an error. Writers: two
`mmb predict` to one file; counted are outputs that are neither's. Linux only: processes are counted in /proc.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import mmb._checksums
from _timing import machine
from mmb.cli import main as mmb_command
from mmb.data.files.archives import checksum_of
from mmb.report import selected_scores
from mmb.training import CheckpointError, Run, RunError
from mmb.training.loop import threshold_log
from mmb.training.runs import checkpoint
from mmb.training.runs.log import read_log
from mmb.training.runs.predict import Predictor

SLOW = ("compare", "tune")  # their processes take some seconds to start
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SIZES = ["data.rows=400", "data.tasks=3", "data.features=6", "data.positive_rate=0.2", "model.hidden=[8]"]
SHORT = ["training.tensorboard=false", "training.device=cpu", "training.log_every=5"]
STEPS = ["training.steps=300", "training.evaluate_every=50", "training.checkpoint_every=20"]
DATA = ["--data", "synthetic", *SIZES, *SHORT, *STEPS]
SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "CCN", "C1CCCCC1", "c1ccncc1C", "CC(C)O", "CCCl"]


def child(arguments):
    """Run one command, in a group of processes of its own, without output."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    os.environ["OMP_NUM_THREADS"] = "1"
    os._exit(mmb_command([str(argument) for argument in arguments]))


def start(context, arguments):
    process = context.Process(target=child, args=(arguments,))
    process.start()
    return process


def in_group(group):
    """Living processes of a group."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, own = path.read_text().rpartition(")")[2].split()[:3]
            found += int(own) == group and state != "Z"
    return found


def leftovers(folder):
    return [path for path in folder.rglob(".*") if ".part" in path.name or "unfinished" in path.name]


def content_of(folder):
    """What a command came to, without times, places and versions: runs, prepared data, predictions."""
    found = {}
    for file in sorted([*folder.rglob("*.npy"), *folder.rglob("out.csv")]):
        found[str(file.relative_to(folder))] = checksum_of(file)
    for file in sorted(folder.rglob("result.json")):
        result = mmb._checksums.without_checksum(json.loads(file.read_text()))
        kept = {key: result[key] for key in ("valid", "tasks", "best_step", "steps")}
        log = [{k: v for k, v in record.items() if k != "seconds"} for record in read_log(file.parent)]
        weights = checkpoint.load(Run.open(file.parent).best_checkpoint())["job"]["model"]
        values = {name: tensor.tolist() for name, tensor in weights.items()}
        found[str(file.parent.relative_to(folder))] = (kept, log, values)
    return found


def is_whole(path, undisturbed):
    """Whether an output is there as a whole, or not at all."""
    if not path.exists():
        return True
    if path.is_dir():
        return {file.name for file in path.iterdir()} == {file.name for file in undisturbed.iterdir()}
    if path.suffix == ".csv":
        return path.read_bytes() == undisturbed.read_bytes()
    return path.read_text().rstrip().endswith("</html>")


def commands(folder, run):
    """For each command: its words, the output that it replaces as a whole (if it does), what to compare."""
    molecules = folder / "molecules.csv"
    table = [f"{SMILES[k % 8]},{k % 2},{k // 2 % 2}" for k in range(6000)]
    molecules.write_text("\n".join(["smiles,a,b", *table]) + "\n")
    grid = folder / "grid.yaml"
    grid.write_text("data: {name: synthetic}\nmethod: ce\ngrid: {optimizer.lr: [0.001, 0.003, 0.01]}\n")
    rows = folder / "rows.csv"
    rows.write_text("x0,x1,x2,x3,x4,x5\n" + "0.5,1,0,-1,2,0\n" * 20_000)
    tables = ["path=" + str(molecules), "labels=a,b"]

    def made(command, output):
        return {
            "train": ["train", "--method", "pauc", *DATA, "--output", output],
            "compare": [
                "compare",
                "--methods",
                "ce,pauc",
                "--seeds",
                2,
                "--jobs",
                2,
                *DATA,
                "--output",
                output,
            ],
            "tune": ["tune", grid, *SIZES, *SHORT, *STEPS, "--trials", 3, "--jobs", 2, "--output", output],
            "data prepare": ["data", "prepare", "molecules", *tables, "--root", output],
            "predict": ["predict", run, "--input", rows, "--output", output / "out.csv"],
            "export": ["export", run, "--output", output / "export"],
            "report": ["report", run, "--output", output / "page.html"],
        }[command]

    names = ["train", "compare", "tune", "data prepare", "predict", "export", "report"]
    outputs = {"predict": "out.csv", "export": "export", "report": "page.html"}
    return {name: (made, outputs.get(name)) for name in names}


def again(name, words, output):
    """The words that continue a command."""
    if name == "train" and (output / "recipe.yaml").exists():
        return ["resume", output]
    return words


def kill_often(context, folder, run, kills, moments):
    rows = []
    for name, (made, part) in commands(folder, run).items():
        reference, output = folder / f"{name} undisturbed", folder / f"{name} killed"
        for place in (reference, output):
            if part:
                place.mkdir()
        began = time.monotonic()
        process = start(context, made(name, reference))
        process.join()
        assert process.exitcode == 0, (name, process.exitcode)
        lasts = time.monotonic() - began
        counts = dict.fromkeys(("kills", "orphans", "partial", "failed", "different", "left over"), 0)
        expected = content_of(reference)
        while counts["kills"] < (kills if name not in SLOW else kills // 3):
            for path in output.iterdir() if output.exists() else ():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not part:
                shutil.rmtree(output, ignore_errors=True)
            for _ in range(3):  # some kills in a row, then to the end
                words = again(name, made(name, output), output)
                process = start(context, words)
                process.join(moments.uniform(0, 1.1 * lasts))
                if process.is_alive():
                    number = moments.choice(SIGNALS)
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, number) if number == signal.SIGINT else os.kill(
                            process.pid, number
                        )
                    counts["kills"] += 1
                    process.join(30)
                    if process.is_alive():
                        os.killpg(process.pid, signal.SIGKILL)
                        counts["failed"] += 1
                    deadline = time.monotonic() + 15
                    while (alive := in_group(process.pid)) and time.monotonic() < deadline:
                        time.sleep(0.05)
                    counts["orphans"] += alive
                    if alive:
                        os.killpg(process.pid, signal.SIGKILL)
                if part and not is_whole(output / part, reference / part):
                    counts["partial"] += 1
            process = start(context, again(name, made(name, output), output))
            process.join()
            counts["failed"] += process.exitcode != 0
            counts["different"] += content_of(output) != expected
            counts["left over"] += len(leftovers(output))
        rows.append({"command": name, "seconds": round(lasts, 1), **counts})
        print(*(str(value).rjust(12) for value in rows[-1].values()), flush=True)
    return rows


def read_all(path):
    """All that commands read back from the folder of a run."""
    run = Run.open(path)
    predictor = Predictor.load(run)
    weights = {name: tensor.tolist() for name, tensor in predictor.model.state_dict().items()}
    known = ("kind", "step", "auc", "pauc", "loss")
    log = [{key: record[key] for key in known if key in record} for record in read_log(path)]
    thresholds = [[v.tolist() for v in report] for report in threshold_log.read(path).values()]
    scores = selected_scores._read(path / "report.safetensors", selected_scores._mark(run.best_checkpoint()))
    kept = [] if scores is None else [[values.tolist() for values in scores.logits.values()]]
    facts = run.recipe, run.result()["test"], predictor.thresholds, predictor.task_names, weights
    return facts, log, thresholds, kept


def flip_often(run, folder, flips, places):
    """Of single flipped bits: noticed by an error, lines left out or computed again, unchanged, different."""
    copy = Path(shutil.copytree(run, folder / "flipped"))
    facts, *lists = read_all(copy)
    files = [path for path in sorted(copy.rglob("[!.]*")) if path.is_file() and path.suffix != ".txt"]
    counts = {"flips": flips, "an error": 0, "left out": 0, "nothing changes": 0, "different": 0}
    for _ in range(flips):
        file = places.choice(files)
        whole = file.read_bytes()
        changed = bytearray(whole)
        changed[places.randrange(len(whole))] ^= 1 << places.randrange(8)
        file.write_bytes(changed)
        try:
            found, *others = read_all(copy)
            if found != facts or not all(
                e in old for new, old in zip(others, lists, strict=True) for e in new
            ):
                counts["different"] += 1
                print("different:", file.relative_to(copy), flush=True)
            else:
                counts["nothing changes" if others == lists else "left out"] += 1
        except (RunError, CheckpointError):
            counts["an error"] += 1
        file.write_bytes(whole)
    return counts


def write_twice(context, folder, runs, pairs):
    """Two commands write one file at the same time."""
    rows, output = folder / "rows.csv", folder / "both.csv"
    whole = []
    for run in runs:
        start(context, words := ["predict", run, "--input", rows, "--output", output]).join()
        whole.append(output.read_bytes())
    mixed = 0
    for _ in range(pairs):
        both = [start(context, [*words[:1], run, *words[2:]]) for run in runs]
        while any(process.is_alive() for process in both):
            mixed += output.read_bytes() not in whole  # at any moment
            time.sleep(0.001)
        mixed += output.read_bytes() not in whole
    return {"pairs": pairs, "mixed": mixed}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="of each command")
    parser.add_argument("--flips", type=int, default=5000)
    parser.add_argument("--pairs", type=int, default=20)
    options = parser.parse_args()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mmb.training", "mmb.report", "mmb.cli.study_commands", "torch._dynamo"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = [folder / "run", folder / "other"]
        for seed, run in enumerate(runs):
            start(context, ["train", "--method", "pauc", *DATA, f"seed={seed}", "--output", run]).join()
        start(context, ["report", runs[0], "--output", folder / "page.html"]).join()
        flips = flip_often(runs[0], folder, options.flips, random.Random(0))
        print(
            "one flipped bit in a file of a run:", ", ".join(f"{n} {k}" for k, n in flips.items()), flush=True
        )
        titles = ("command", "seconds", "kills", "orphans", "partial", "failed", "different", "left over")
        print("\n" + " ".join(title.rjust(12) for title in titles), flush=True)
        kills = kill_often(context, folder, runs[0], options.kills, random.Random(0))
        writers = write_twice(context, folder, runs, options.pairs)
        print(f"\ntwo writers of one file: {writers['pairs']} pairs, {writers['mixed']} times mixed")
    print(
        json.dumps({"benchmark": "faults", "machine": machine(), "flips": flips, "kills": kills, **writers})
    )


if __name__ == "__main__":
    sys.exit(main())
