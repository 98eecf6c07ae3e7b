"""What people type: names of data sets and files as bare words, keys as options, typos and other names.

Everything is answered from the table of keys, before anything slow is imported.
"""

import argparse
import csv
import difflib
import gzip
import importlib
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from mmb._import_paths import is_import_path
from mmb._key_meanings import key_of, meant_key, no_such_key
from mmb._names import nearest
from mmb.cli.known_keys import Entry, keys_of, may_have_others, table

DEFAULT_METHOD = "soup"
_RECIPES, _TABLES = (".yaml", ".yml"), (".csv", ".tsv", ".gz", ".zst", ".parquet", ".arrow")
_OTHER_KEYS = ("grid.", "pretrain.", "branches.", "objective.parts.")  # what follows depends on the recipe
_ACTIONS = ("list", "describe", "get", "prepare")


class UsageError(Exception):
    """The command line was not understood."""


def options_as_keys(words: Sequence[str], known: dict[str, argparse.Action]) -> list[str]:
    """Words in which options that are keys, such as `--epochs 3`, are written `training.epochs=3`."""
    found: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, sign, value = word.partition("=")
        if not word.startswith("--") or name == "--" or name in known:
            found.append(word)
            if not sign and name in known and known[name].nargs is None and waiting:
                found.append(waiting.pop(0))  # its value, whatever it looks like
            continue
        keys = keys_of()
        key = key_of(name[2:], keys)
        if key is None:
            likely = (
                None if difflib.get_close_matches(name, known, 1, 0.7) else meant_key(name[2:], list(keys))
            )
            hint = f"; did you mean '{likely}=...'?" if likely else nearest(name, known)
            raise UsageError(f"there is no option {name!r}{hint}")
        if not sign:
            follows = bool(waiting) and not waiting[0].startswith("--")
            if (allowed := keys[key]["type"].split(" or "))[:2] == ["true", "false"]:
                value = waiting.pop(0) if follows and waiting[0] in allowed else "true"
            elif follows:
                value = waiting.pop(0)
            else:
                raise UsageError(f"{name} needs a value: write {key}=...")
        found.append(f"{key}={value}")
    return found


def understand(command: str, options: argparse.Namespace) -> None:
    """Sort the words of a command out, in place, and refuse what cannot be meant."""
    if command == "data":
        _understand_data(options)
    elif hasattr(options, "recipe"):
        _understand_recipe(command, options)


def _understand_data(options: argparse.Namespace) -> None:
    words = [word for word in (options.action, options.name) if word is not None]
    options.overrides = [*(word for word in words if "=" in word), *options.overrides]
    words = [word for word in words if "=" not in word]
    if words and words[0] not in _ACTIONS:
        if words[0] not in table()["data"] and not is_import_path(words[0]):
            raise UsageError(f"there is no action {words[0]!r}{nearest(words[0], _ACTIONS)}")
        words.insert(0, "describe")
    options.action, options.name = [*words, None, None][:2] if words else ("list", None)
    for word in options.overrides:
        if "=" not in word:
            raise UsageError(f"{word!r} is not understood: expected key=value")
    if options.name is None or is_import_path(options.name):
        return
    _check_name("data", options.name)
    known = {f"data.{name}" for name in table()["prepare"][options.name]} | {
        key for key in keys_of(data=options.name) if key.startswith("data.") and key != "data.name"
    }
    for word in options.overrides:
        key, _, value = word.partition("=")
        if f"data.{key}" not in known:
            raise UsageError(no_such_key(key, sorted(name[5:] for name in known)))
        _check_value(key, value, keys_of(data=options.name).get(f"data.{key}"))


def _understand_recipe(command: str, options: argparse.Namespace) -> None:
    words = [word for word in (options.recipe, *options.overrides) if word is not None]
    options.recipe, options.overrides = None, [word for word in words if "=" in word]
    for word in words:
        if "=" not in word:
            _place(word, options)
    given = dict(word.partition("=")[::2] for word in options.overrides)
    data = options.data or given.get("data.name")
    method = getattr(options, "method", None) or given.get("method")
    for kind, name in (("data", data), ("method", method), ("model", given.get("model.name"))):
        if name is not None:
            _check_name(kind, name)
    for name in filter(None, map(str.strip, getattr(options, "methods", "").split(","))):
        _check_name("method", name)
    _check_keys(given, options.recipe, data, method)
    if options.recipe is not None or getattr(options, "keys", False):
        return
    needed = {"compare": ("data",), "train": ("data",), "tune": ("data", "method")}[command]
    if missing := [name for name in needed if not {"data": data, "method": method}[name]]:
        raise UsageError(
            f"give a recipe file, or {' and '.join(f'--{name}' for name in needed)}; missing: "
            f"{' and '.join(missing)} (`mmb data list` lists data sets)"
        )
    if data in ("csv", "table", "molecules"):
        _check_columns(data, given, options)
    if command == "train" and method is None:
        options.method = DEFAULT_METHOD


def _place(word: str, options: argparse.Namespace) -> None:
    """Put a bare word where it belongs: a recipe, a data set, a method or a table."""
    path = Path(word)
    known = table()
    if path.suffix in _RECIPES or (path.is_file() and path.suffix not in _TABLES):
        if options.recipe is not None:
            raise UsageError(f"two recipes were given: {options.recipe} and {word}")
        options.recipe = word
    elif path.suffix in _TABLES:
        molecules = any(name.lower() == "smiles" for name in _columns(path))
        options.data = options.data or ("molecules" if molecules else "table")
        options.overrides.append(f"data.path={word}")
    elif word in known["data"]:
        options.data = word
    elif word in known["method"] and hasattr(options, "method"):
        options.method = word
    elif (path / "recipe.yaml").exists():
        raise UsageError(f"{word} is the folder of a run: continue it with `mmb resume {word}`")
    else:
        every = [*known["data"], *known["method"]]
        raise UsageError(f"{word!r} is not a recipe file, a data set or a method{nearest(word, every)}")


def _check_name(kind: str, name: str) -> None:
    known = table()[kind]
    if name not in known and not is_import_path(name):
        what = {"data": "data set", "method": "method", "model": "network"}[kind]
        raise UsageError(f"there is no {what} {name!r}{nearest(name, known)}")


def _check_keys(given: dict[str, str], recipe: str | None, data: str | None, method: str | None) -> None:
    """Refuse keys that no recipe with this data set, network and method has, and values that cannot be."""
    model = given.get("model.name")
    known = keys_of() if recipe is not None else keys_of(data, model, method)
    parts = {"data": data, "model": model, "objective": method, "sampler": given.get("sampler.kind")}
    for key, value in given.items():
        part = parts.get(key.split(".")[0])
        if key not in known and not key.startswith(_OTHER_KEYS):
            if may_have_others(part) or any(name.startswith(f"{key}.") for name in known):
                continue  # a user's own part, or a whole section, which `resolve` checks
            raise UsageError(no_such_key(key, list(known)))
        if (part is not None and recipe is None) or key in table()["keys"]["settings"]:
            _check_value(key, value, known.get(key))  # else it may be the entry of another part


def _check_value(key: str, value: str, entry: Entry | None) -> None:
    """Refuse a value that is none of a key's choices, or not a number where one is needed."""
    if entry is None:
        return
    if entry["choices"] and ":" not in value and value not in [*map(str, entry["choices"]), "null"]:
        choices = [str(choice) for choice in entry["choices"] if choice is not None]
        raise UsageError(f"{key}: got {value!r}{nearest(value, choices)}")
    kind = entry["type"].removesuffix(" or null")
    if kind in ("whole number", "number") and value not in ("null", "~", ""):
        try:
            whole = float(value).is_integer() or kind == "number"
        except (ValueError, OverflowError):
            whole = False
        if not whole:
            raise UsageError(f"{key}: expected a {kind}, got {value!r}")


def _check_columns(data: str, given: dict[str, str], options: argparse.Namespace) -> None:
    """Say which columns a file has if its labels are missing, and find SMILES in whatever case."""
    if "data.path" not in given:
        raise UsageError("data.path is missing: which file? For example data.path=table.csv")
    path = Path(given["data.path"])
    if path.suffix not in _TABLES or not path.is_file():
        return
    columns = _columns(path)
    if data != "molecules" and "data.labels" not in given:
        raise UsageError(
            f"data.labels is missing: which columns of {path} are labels? "
            f"{'It has ' + ', '.join(columns) + '; ' if columns else ''}"
            f"for example data.labels={columns[-1] if columns else 'NAME'}"
        )
    if data == "molecules" and "data.smiles" not in given and "smiles" not in columns:
        found = [name for name in columns if name.lower() == "smiles"]
        options.overrides += [f"data.smiles={name}" for name in found[:1]]


def _columns(path: Path) -> list[str]:
    """The names of the columns of a table, without importing what is slow; none if that fails."""
    try:
        with path.open("rb") as file:
            start = file.read(6)
        if start.startswith((b"PAR1", b"ARROW1")):
            polars = importlib.import_module("polars")
            scan = polars.scan_parquet if start.startswith(b"PAR1") else polars.scan_ipc
            return list(scan(path).collect_schema())
        if start.startswith(b"\x28\xb5\x2f\xfd"):  # Zstandard
            return []
        with (gzip.open if start.startswith(b"\x1f\x8b") else open)(path, "rb") as text:
            header = text.readline().decode("utf-8-sig", "replace")
    except Exception:  # whatever is wrong with it is said when it is read
        return []
    separator = "\t" if ".tsv" in path.suffixes else "," if "," in header else max(";\t|", key=header.count)
    return next(csv.reader([header], delimiter=separator), [])


def check_files(options: argparse.Namespace) -> None:
    """Refuse recipes and tables that are not there, and folders without a run; names a run nearby."""
    if getattr(options, "recipe", None):
        options.recipe = str(_shipped(Path(options.recipe)))
    if hasattr(options, "recipes"):
        options.recipes = _shipped(options.recipes)
    if getattr(options, "recipe", None) and not Path(options.recipe).exists():
        raise UsageError(f"there is no recipe {options.recipe}")
    for word in getattr(options, "overrides", []):
        key, _, value = word.partition("=")
        if key == "data.path" and Path(value).suffix in _TABLES and not Path(value).exists():
            raise UsageError(f"data.path: there is no file {value} (from {Path.cwd()})")
    given = getattr(options, "run", [])
    for path in given if isinstance(given, list) else [given]:
        ensemble = isinstance(given, list) and (path / "ensemble.json").exists()
        if not (path / "recipe.yaml").exists() and not ensemble:
            raise UsageError(_no_run(path))


def _shipped(path: Path) -> Path:
    """A path, or that of a recipe that was installed with the package, if there is one of that name."""
    installed = Path(sysconfig.get_path("data"), "share", "mmb", path)
    return installed if not path.exists() and installed.exists() else path


def _no_run(path: Path) -> str:
    if path.is_file():
        return f"{path} is a file: expected the folder of a run"
    near = sorted({file.parent for file in Path().glob("runs/**/recipe.yaml")})[:200]
    inside = sorted(file.parent for file in path.glob("**/recipe.yaml"))[:3]
    if inside:
        return f"there is no run in {path} itself; inside of it are {', '.join(map(str, inside))}"
    hint = nearest(str(path), map(str, near)) if near else ": it has no recipe.yaml"
    return f"there is no run in {path}{hint}"
