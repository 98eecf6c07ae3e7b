"""What recipes may name, from a table that is read in a millisecond: keys, data sets, networks, methods.

Types, defaults and help texts are in signatures and docstrings of the library, which take seconds to import.
`python -m mmb.cli.make_keys` writes them to `keys.json`, and a test keeps that file true.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("keys.json")

Entry = dict[str, Any]
"""Of a key: `type` and `help` as texts, its `default`, and its `choices` or None."""


@cache
def table() -> dict[str, Any]:
    """Data sets, networks and methods with a line about each, and under `keys` the keys of each.

    `keys` has `settings`, the keys of every recipe, and `data`, `model` and `objective`, each by name.
    """
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def keys_of(data: str | None = None, model: str | None = None, method: str | None = None) -> dict[str, Entry]:
    """Keys of recipes with this data set, network and method; None stands for any of them."""
    found: dict[str, Entry] = dict(table()["keys"]["settings"])
    for section, name in (("data", data), ("model", model), ("objective", method)):
        options: dict[str, dict[str, Entry]] = table()["keys"][section]
        for one in options if name is None else [name]:
            found |= options.get(one, {})
    return found


def listing(groups: dict[str, dict[str, Entry]]) -> str:
    """Groups of keys as text: each key as it is typed, with its default, what it takes and its help."""
    lines: list[str] = []
    for title, entries in groups.items():
        lines += [title, *(line for key, entry in entries.items() for line in _lines(key, entry)), ""]
    return "\n".join(lines[:-1])


def _lines(key: str, entry: Entry) -> list[str]:
    default = entry["default"]
    if default is None:
        shown = "null" if "null" in entry["type"] else "..."
    else:
        shown = default if isinstance(default, str) else json.dumps(default)
    return [f"  {key}={shown}", f"      {entry['help']} ({entry['type']})"]


def all_keys() -> str:
    """The keys of all recipes, grouped."""
    found = table()
    groups: dict[str, dict[str, Entry]] = {}
    for key, entry in found["keys"]["settings"].items():
        groups.setdefault(key.rpartition(".")[0] or "recipe", {})[key] = entry
    text = listing(groups)
    for section, title, choose in (
        ("data", "data: options of each data set", "--data NAME"),
        ("model", "model: options of each network", "--data NAME model.name=NAME"),
        ("objective", "objective: options of each method", "--method NAME"),
    ):
        text += f"\n\n{title} (with help: mmb train {choose} --keys)\n"
        by_name = found["keys"][section]
        text += "\n".join(f"  {name}: {', '.join(by_name[name]) or 'none'}" for name in by_name)
    return text
