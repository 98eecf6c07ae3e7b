"""What is left when commands are killed, files damaged, and two commands write to the same place?

Kills: each command is started, gets a signal at a random moment, and is repeated until it ends. Counted are
processes that outlive their command, files that a reader finds in part, results that differ from those of an
undisturbed command, and what is left on the disk at the end. Flips: one random bit in a random file of a
finished run; counted are flips that change what is read from the run without an error. Writers: two
`mmb predict` to one file; counted are outputs that are neither's. Groups: one of some processes that train a
run together is killed; counted are others that do not end by themselves, and runs that differ after
`mmb resume`. Linux only: processes are counted in /proc.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import mmb._checksums
from _fault_programs import PROGRAMS
from _timing import machine
from mmb.cli import main as mmb_command
from mmb.data.files.archives import checksum_of
from mmb.report import selected_scores
from mmb.training import METHODS, CheckpointError, Run, RunError
from mmb.training.loop import threshold_log
from mmb.training.runs import checkpoint
from mmb.training.runs.averaged_runs import Predictor
from mmb.training.runs.log import read_log

SLOW = ("compare", "tune", "reproduce", "train --method soup --jobs 2")  # many seconds
PARTS = ("flips", "kills", "groups", "writers")
KILLED = ("command", "seconds", "kills", "orphans", "partial", "failed", "different", "left over")
LOST = ("method", "processes", "seconds", "kills", "hang", "silent", "failed", "slowest", "different")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SIZES = ["data.rows=400", "data.tasks=3", "data.features=6", "data.positive_rate=0.2", "model.hidden=[8]"]
SHORT = ["training.tensorboard=false", "training.device=cpu", "training.log_every=5"]
STEPS = ["training.steps=300", "training.evaluate_every=50", "training.checkpoint_every=20"]
DATA = ["--data", "synthetic", *SIZES, *SHORT, *STEPS]
SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "CCN", "C1CCCCC1", "c1ccncc1C", "CC(C)O", "CCCl"]


def child(arguments, environment):
    """Run one command or program, in a group of processes of its own, without output."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.update(environment)
    words = [str(argument) for argument in arguments]
    os._exit(PROGRAMS[words[0]](*words[1:]) if words[0] in PROGRAMS else mmb_command(words))


def start(context, arguments, **environment):
    process = context.Process(target=child, args=(arguments, environment))
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
    for file in sorted([*folder.rglob("*.npy"), *folder.rglob("[!c]*.csv")]):  # curves.csv has times
        found[str(file.relative_to(folder))] = checksum_of(file)
    for file in sorted(folder.rglob("result.json")):
        result = mmb._checksums.without_checksum(json.loads(file.read_text()))
        kept = {key: result[key] for key in ("valid", "tasks", "best_step", "steps")}
        log = [{k: v for k, v in record.items() if k != "seconds"} for record in read_log(file.parent)]
        values = {}
        if (file.parent / "checkpoints").exists():  # not beside a log that is kept for a table
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
    """Functions from outputs to the words of commands, each with what it replaces as a whole, if anything."""
    molecules, assays = folder / "molecules.csv", folder / "toxcast.csv"
    table = [f"{SMILES[k % 8]},{k % 2},{k // 2 % 2}" for k in range(6000)]
    molecules.write_text("\n".join(["smiles,a,b", *table]) + "\n")
    names = ",".join(f"t{k}" for k in range(617))
    assays.write_text("\n".join([f"smiles,{names}", *["CCO" + ",1" * 617] * 8576]) + "\n")
    grid = folder / "grid.yaml"
    grid.write_text("data: {name: synthetic}\nmethod: ce\ngrid: {optimizer.lr: [0.001, 0.003, 0.01]}\n")
    rows = folder / "rows.csv"
    rows.write_text("x0,x1,x2,x3,x4,x5\n" + "0.5,1,0,-1,2,0\n" * 20_000)
    studies = write_study(folder / "studies")
    tables = ["path=" + str(molecules), "labels=a,b"]
    several = ["compare", "--methods", "ce,pauc", "--seeds", 2, "--jobs", 2, *DATA]
    trials = ["tune", grid, *SIZES, *SHORT, *STEPS, "--trials", 3, "--jobs", 2]
    study = ["reproduce", "table2", "--data", "synthetic", "--recipes", studies, "--seeds", 2, "--jobs", 2]
    train = ["train", *DATA, "--method"]
    return {
        "train": (lambda out: [*train, "pauc", "--output", out], None),
        "train --method soup": (lambda out: [*train, "soup", "--output", out], None),
        "train --method soup --jobs 2": (lambda out: [*train, "soup", "--jobs", 2, "--output", out], None),
        "compare": (lambda out: [*several, "--output", out], None),
        "tune": (lambda out: [*trials, "--output", out], None),
        "reproduce": (lambda out: [*study, "--output", out / "runs", "--results", out / "results"], None),
        "data get": (lambda out: ["data", "get", "toxcast", "--from", folder, "--root", out], None),
        "data prepare": (lambda out: ["data", "prepare", "molecules", *tables, "--root", out], None),
        "predict": (lambda out: ["predict", run, "--input", rows, "--output", out / "out.csv"], "out.csv"),
        "export": (lambda out: ["export", run, "--output", out / "export"], "export"),
        "report": (lambda out: ["report", run, "--output", out / "page.html"], "page.html"),
        "Trainer.fit": (lambda out: ["lightning", out], "weights.csv"),
        "fit": (lambda out: ["fit", out], "scores.csv"),
    }


def write_study(folder):
    """A study of two methods, which share their first phase."""
    place = folder / "synthetic" / "table2"
    place.mkdir(parents=True)
    start, rows = place.parent / "start.yaml", place.parent / "rows.yaml"
    parts = [part.partition("=")[::2] for part in [*SIZES, *SHORT]]
    plain = {"data": "{name: synthetic, ", "model": "{name: mlp, ", "training": "{"}
    for key, value in parts:
        group, _, name = key.partition(".")
        plain[group] += f"{name}: {value}, "
    shared = "".join(f"{group}: {text}}}\n" for group, text in plain.items() if group != "training")
    training = plain["training"] + "steps: %d, evaluate_every: 50, checkpoint_every: 20}\n"
    start.write_text(f"method: ce\ntraining: {training % 100}")
    rows.write_text(f"{shared}training: {training % 200}init_heads: true\npretrain: {{base: start.yaml}}\n")
    for method in ("ce", "pauc"):
        (place / f"{method}.yaml").write_text(f"base: ../rows.yaml\nmethod: {method}\n")
    (place / "study.yaml").write_text("title: A table\nmetric: pauc\nrows: [ce, pauc]\nnotes: None.\n")
    return folder


def again(words, output):
    """The words that continue a command."""
    if words[0] == "train" and (output / "recipe.yaml").exists():
        return ["resume", output, *(["--jobs", 2] if "--jobs" in words else [])]
    return words


def kill_often(context, folder, run, kills, moments, only):
    rows = []
    for name, (made, part) in commands(folder, run).items():
        if only and name not in only:
            continue
        reference, output = folder / f"{name} undisturbed", folder / f"{name} killed"
        for place in (reference, output):
            if part:
                place.mkdir()
        began = time.monotonic()
        process = start(context, made(reference))
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
                words = again(made(output), output)
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
            process = start(context, again(made(output), output))
            process.join()
            counts["failed"] += process.exitcode != 0
            counts["different"] += content_of(output) != expected
            counts["left over"] += len(leftovers(output))
        rows.append({"command": name, "seconds": round(lasts, 1), **counts})
        print(
            *(str(value).rjust(28 if key == "command" else 9) for key, value in rows[-1].items()), flush=True
        )
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


def train_in_group(context, words, size):
    """Processes that train together, as torchrun starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "MMB_TIMEOUT": "20",
    }
    return [start(context, words, RANK=str(rank), LOCAL_RANK=str(rank), **shared) for rank in range(size)]


def kill_one_of_many(context, folder, kills, moments):
    """One process of a group is killed: the others end with an error, and the run continues."""
    rows = []
    for method in METHODS:
        size = moments.choice((2, 3))
        made = ["train", "--method", method, *DATA, "training.steps=60", "--output"]
        reference, output = folder / f"{method} together", folder / f"{method} together, killed"
        began = time.monotonic()
        for process in (group := train_in_group(context, [*made, reference], size)):
            process.join()
        lasts = time.monotonic() - began
        assert not any(process.exitcode for process in group), method
        counts = {"kills": 0, "hang": 0, "silent": 0, "failed": 0, "slowest": 0.0, "different": 0}
        expected = content_of(reference)
        while counts["kills"] < kills:
            shutil.rmtree(output, ignore_errors=True)
            group = train_in_group(context, again([*made, output], output), size)
            time.sleep(moments.uniform(0, lasts))
            victim = moments.choice(group)
            if not victim.is_alive():
                for process in group:
                    process.join()
                continue
            victim.kill()
            counts["kills"] += 1
            began = time.monotonic()
            for process in group:
                process.join(max(0.0, 60 - (time.monotonic() - began)))
                if process.is_alive():
                    counts["hang"] += 1
                    os.killpg(process.pid, signal.SIGKILL)
                counts["silent"] += process is not victim and process.exitcode == 0
            counts["slowest"] = round(max(counts["slowest"], time.monotonic() - began), 1)
            for process in (group := train_in_group(context, again([*made, output], output), size)):
                process.join()
            counts["failed"] += any(process.exitcode for process in group)
            counts["different"] += content_of(output) != expected
        rows.append({"method": method, "processes": size, "seconds": round(lasts, 1), **counts})
        print(*(str(value).rjust(14) for value in rows[-1].values()), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to do, of all")
    parser.add_argument("--only", nargs="+", help="kill these commands alone")
    parser.add_argument("--kills", type=int, default=30, help="of each command")
    parser.add_argument("--flips", type=int, default=5000)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--lost", type=int, default=2, help="processes killed of groups, for each method")
    options = parser.parse_args()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mmb.training", "mmb.report", "mmb.cli.study_commands", "torch._dynamo"])
    found = {"benchmark": "faults", "machine": machine()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = [folder / "run", folder / "other"]
        for seed, run in enumerate(runs):
            start(context, ["train", "--method", "pauc", *DATA, f"seed={seed}", "--output", run]).join()
        if "flips" in options.parts:
            start(context, ["report", runs[0], "--output", folder / "page.html"]).join()
            found["flips"] = flips = flip_often(runs[0], folder, options.flips, random.Random(0))
            counts = ", ".join(f"{n} {k}" for k, n in flips.items())
            print("one flipped bit in a file of a run:", counts, flush=True)
        if "kills" in options.parts:
            print("\n" + " ".join(t.rjust(28 if t == "command" else 9) for t in KILLED), flush=True)
            found["kills"] = kill_often(
                context, folder, runs[0], options.kills, random.Random(0), options.only
            )
        if "groups" in options.parts:
            print("\n" + " ".join(title.rjust(14) for title in LOST), flush=True)
            found["lost"] = kill_one_of_many(context, folder, options.lost, random.Random(0))
        if "writers" in options.parts:
            found |= (writers := write_twice(context, folder, runs, options.pairs))
            print(f"\ntwo writers of one file: {writers['pairs']} pairs, {writers['mixed']} times mixed")
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
