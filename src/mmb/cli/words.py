"""What people type: names of data sets and files as bare words, keys as options, typos and other names.

Everything is answered from the table of keys, before anything slow is imported.
"""

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path

from mmb._import_paths import import_path_hint, is_import_path
from mmb._key_meanings import key_of, meant_key, no_such_key
from mmb._names import OWN_DATA, first_few, nearest
from mmb.cli.known_keys import Entry, keys_of, table
from mmb.cli.own_tables import columns_of, data_of
from mmb.cli.table_head import is_table
from mmb.cli.usage import UsageError

DEFAULT_METHOD = "soup"
_RECIPES = (".yaml", ".yml")
_PATHS = ("data.path", "data.valid_path", "data.test_path", "data.root", "model.weights", "init_from")
_OTHER_KEYS = ("grid.", "pretrain.", "branches.", "objective.parts.")  # what follows depends on the recipe
_ACTIONS = ("list", "describe", "get", "prepare")


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
            hint = f"; did you mean {_as_option(likely, keys)}?" if likely else nearest(name, known)
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


def _as_option(key: str, keys: dict[str, Entry]) -> str:
    """A key as an option, such as `--labels`, or as `key=...` where its last part means another key."""
    short = key.rpartition(".")[2]
    return f"--{short.replace('_', '-')}" if key_of(short, keys) == key else f"'{key}=...'"


def understand(command: str, options: argparse.Namespace) -> None:
    """Sort out the words of a command, in place, and refuse what makes no sense."""
    if command == "data":
        _understand_data(options)
    elif hasattr(options, "recipe"):
        _understand_recipe(command, options)


def _understand_data(options: argparse.Namespace) -> None:
    words = [word for word in (options.action, options.name, *options.overrides) if word is not None]
    given = [word.removeprefix("data.") for word in words if "=" in word]
    words = [word for word in words if "=" not in word]
    place = next((place for place, word in enumerate(words[:2]) if word not in _ACTIONS), len(words))
    if place < len(words) and words[place] not in table()["data"] and (kind := data_of(words[place])):
        given, words[place] = [f"path={Path(words[place]).expanduser()}", *given], kind
    options.overrides = [*words[2:], *(_as_meant(word, "data.") for word in given)]
    words = words[:2]
    if words and words[0] not in _ACTIONS:
        if words[0] not in table()["data"] and not is_import_path(words[0]):
            if Path(words[0]).exists():
                raise UsageError(_no_table(words[0]))
            raise UsageError(f"there is no action {words[0]!r}{nearest(words[0], _ACTIONS)}")
        words.insert(0, "describe")
    options.action, options.name = [*words, None, None][:2] if words else ("list", None)
    for word in options.overrides:
        if "=" not in word:
            raise UsageError(f"{word!r} is not understood: expected key=value")
    if options.name is None or is_import_path(options.name):
        return
    if options.name not in table()["data"] and Path(options.name).exists():
        raise UsageError(_no_table(options.name))
    _check_name("data", options.name)
    known = {f"data.{name}" for name in table()["prepare"][options.name]} | {
        key for key in keys_of(data=options.name) if key.startswith("data.") and key != "data.name"
    }
    for word in options.overrides:
        key, _, value = word.partition("=")
        if f"data.{key}" not in known:
            raise UsageError(no_such_key(key, sorted(name[5:] for name in known)))
        _check_value(key, value, keys_of(data=options.name).get(f"data.{key}"))
    if options.name in OWN_DATA and options.action in ("describe", "prepare"):
        found = columns_of(options.name, dict(word.partition("=")[::2] for word in options.overrides))
        options.overrides += [f"{key}={name}" for key, name in found.items()]


def _understand_recipe(command: str, options: argparse.Namespace) -> None:
    words = [word for word in (options.recipe, *options.overrides) if word is not None]
    options.recipe, options.overrides = None, [_as_meant(word) for word in words if "=" in word]
    plain = [word for word in words if "=" not in word]
    for word in sorted(plain, key=is_import_path):  # last: what they are depends on the others
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
            f"give a recipe file, a table of your own, or a data set{' with a method' * (len(needed) > 1)}; "
            f"missing: {' and '.join(missing)}. For example: mmb {command} table.csv --labels NAME"
            f"{' pauc' * (len(needed) > 1)} (`mmb data list` lists data sets)"
        )
    if data in OWN_DATA:
        of_data = {key[5:]: value for key, value in given.items() if key.startswith("data.")}
        options.overrides += [f"data.{key}={name}" for key, name in columns_of(data, of_data).items()]
    if command == "train" and method is None:
        options.method = DEFAULT_METHOD


def _as_meant(word: str, section: str = "") -> str:
    """`key=value` with the home folder in place of `~`, which shells leave there, and brackets for lists."""
    key, _, value = word.partition("=")
    if section + key in _PATHS and value.startswith("~"):
        return f"{key}={Path(value).expanduser()}"
    kind = keys_of().get(section + key, {"type": ""})["type"]
    if not kind.startswith(("list of numbers", "list of whole")) or value.startswith(("[", "null", "~")):
        return word
    parts = value.replace(",", " ").split()
    if not all(map(_is_number, parts)):
        raise UsageError(f"{key}: expected numbers with commas, such as {key}=64,32, got {value!r}")
    return f"{key}=[{', '.join(parts)}]"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _place(word: str, options: argparse.Namespace) -> None:
    """Put a bare word where it belongs: a recipe, a data set, a method or a table."""
    path = Path(word).expanduser()
    known = table()
    if path.suffix in _RECIPES or (path.suffix in ("", ".json") and path.is_file()):
        if options.recipe is not None:
            raise UsageError(f"two recipes were given: {options.recipe} and {word}")
        options.recipe = str(path)
    elif word in known["data"]:
        options.data = word
    elif word in known["method"] and hasattr(options, "method"):
        if options.method is not None and options.method != word:
            raise UsageError(
                f"two methods were given: {options.method} and {word}; to compare several, mmb compare "
                f"--methods {options.method},{word}"
            )
        options.method = word
    elif word in known["method"] and hasattr(options, "methods"):
        raise UsageError(f"methods are joined by commas, as in --methods {options.methods},{word}")
    elif (path / "recipe.yaml").exists():
        raise UsageError(f"{word} is the folder of a run: continue it with `mmb resume {word}`")
    elif kind := data_of(word):
        options.data = options.data or kind
        key = "data.path="
        if given := [text for text in options.overrides if text.startswith(key)]:
            raise UsageError(
                f"two tables were given: {given[-1].removeprefix(key)} and {word}; rows for validation "
                "and test are in --valid-path and --test-path, and a folder of tables is one table"
            )
        options.overrides.append(f"data.path={path}")
    elif path.exists():
        raise UsageError(_no_table(word))
    elif is_import_path(word):
        _place_import_path(word, options)
    else:
        raise UsageError(f"{word!r} is not {_nearest_word(word, options)}")


def _no_table(word: str) -> str:
    """A message about a file or folder that is not a table by its name."""
    path = Path(word)
    others = [] if not path.is_dir() else sorted(file.name for file in path.iterdir() if not is_table(file))
    if path.is_dir():
        what = f"it has {first_few(others, 3)} in it" if others else "it is empty"
        return f"{word} is not a folder of tables: {what}; give a file, or a folder of nothing but tables"
    return (
        f"{word} is neither a recipe (.yaml) nor a table by its name: expected CSV, TSV, TXT, Parquet or "
        "Arrow; for another name, --data table --path FILE"
    )


def _place_import_path(word: str, options: argparse.Namespace) -> None:
    """The first import path is the data set, unless that is given; the next one is the method."""
    given = [override.partition("=")[0] for override in options.overrides]
    if options.data is None and options.recipe is None and "data.name" not in given:
        options.data = word
    elif getattr(options, "method", word) is None and "method" not in given:
        options.method = word
    else:
        raise UsageError(f"{word!r}: the data set and the method are given; for a network, model.name={word}")


def _nearest_word(word: str, options: argparse.Namespace) -> str:
    """What a bare word may be, and the nearest of that; the end of a message."""
    known = table()
    every = [*known["data"], *known["method"]]
    text = "a file, a data set (`mmb data list`) or a method (`mmb train --help`)"
    if difflib.get_close_matches(word, every, 1, 0.5):
        text += nearest(word, every)
    for given in reversed(options.overrides):
        key, _, value = given.partition("=")
        if key in ("data.labels", "data.features", "data.drop", "model.hidden"):
            short = key.partition(".")[2]
            return f"{text}; several values are joined by commas, as in --{short} {value},{word}"
    return text


def _check_name(kind: str, name: str) -> None:
    known = table()[kind]
    if name not in known and not is_import_path(name):
        what = {"data": "data set", "method": "method", "model": "network"}[kind]
        raise UsageError(f"there is no {what} {name!r}{nearest(name, known)}{import_path_hint(name)}")


def _check_keys(given: dict[str, str], recipe: str | None, data: str | None, method: str | None) -> None:
    """Refuse keys that no recipe with this data set, network and method has, and impossible values."""
    model = given.get("model.name")
    known = keys_of() if recipe is not None else keys_of(data, model, method)
    parts = {"data": data, "model": model, "objective": method, "sampler": given.get("sampler.kind")}
    for key, value in given.items():
        part = parts.get(key.split(".")[0])
        if key not in known and not key.startswith(_OTHER_KEYS):
            if is_import_path(part or "") or any(name.startswith(f"{key}.") for name in known):
                continue  # a user's own part, or a whole section, which `resolve` checks
            raise UsageError(no_such_key(key, list(known)))
        if (part is not None and recipe is None) or key in table()["keys"]["settings"]:
            _check_value(key, value, known.get(key))  # else it may be the entry of another part


def _check_value(key: str, value: str, entry: Entry | None) -> None:
    """Refuse a value that is not among a key's choices, or not a number where one is needed."""
    if entry is None:
        return
    if entry["choices"] and ":" not in value and value not in [*map(str, entry["choices"]), "null"]:
        choices = [str(choice) for choice in entry["choices"] if choice is not None]
        raise UsageError(f"{key}: got {value!r}{nearest(value, choices)}")
    kind = entry["type"].removesuffix(" or null")
    if kind not in ("whole number", "number") or value in ("null", "~", ""):
        return
    if not _is_number(value) or (kind == "whole number" and not float(value).is_integer()):
        raise UsageError(f"{key}: expected a {kind}, got {value!r}")
