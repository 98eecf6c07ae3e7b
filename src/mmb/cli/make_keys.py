"""`python -m mmb.cli.make_keys`: writes `keys.json`, the table of keys that the command line answers from."""

import json
from typing import Any

from mmb import data, models
from mmb.cli.known_keys import FILE, Entry
from mmb.data.registry import ALIASES
from mmb.training import METHODS
from mmb.training.recipes.key_help import key_help
from mmb.training.recipes.key_parser import make_parser

_ANY: dict[str, Any] = {"method": "ce", "data": {"name": "synthetic"}, "model": {"name": "mlp"}}
_PARTS = ("data", "model", "objective")


def make_table() -> dict[str, Any]:
    """The whole table; needs all extras, for the signatures of what they bring."""
    earlier = {name: f"The earlier name of `{now}`." for name, now in ALIASES.items()}
    sets, networks = {**data.available_datasets(), **earlier}, models.available_networks()
    keys = {
        "settings": {
            key: entry
            for key, entry in _plain_help({}).items()
            if key.split(".")[0] not in _PARTS or key.endswith(".name")
        },
        "data": {name: _section("data", {"data": {"name": name}}) for name in sets},
        "model": {name: _section("model", {"model": {"name": name}}) for name in networks},
        "objective": {name: _section("objective", {"method": name}) for name in METHODS},
    }
    prepare = {name: sorted(data.dataset_options(name, "prepare")) for name in sets}
    methods = {name: method.title for name, method in METHODS.items()}
    return {"data": sets, "model": networks, "method": methods, "prepare": prepare, "keys": keys}


def _section(section: str, chosen: dict[str, Any]) -> dict[str, Entry]:
    found = _plain_help(chosen)
    return {
        k: v
        for k, v in found.items()
        if k.startswith(f"{section}.") and not k.startswith(("objective.parts", f"{section}.name"))
    }


def _plain_help(chosen: dict[str, Any]) -> dict[str, Entry]:
    """Help on keys, with defaults that hold whatever the data set and method are."""
    merged = {**_ANY, **chosen}
    found = key_help(merged)
    parser = make_parser({"objective": {"parts": {}}, **merged})
    for key in found:
        if not key.startswith("objective.parts"):
            found[key]["default"] = json.loads(json.dumps(parser.get_default(key), default=str))
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(make_table(), indent=1) + "\n", encoding="utf-8")
