"""`mmb train --keys`: all keys of recipes, or those of what is chosen, as they are typed."""

import argparse

from mmb.cli.console import Console
from mmb.cli.known_keys import all_keys, listing
from mmb.cli.words import DEFAULT_METHOD


def run_keys(options: argparse.Namespace, console: Console) -> None:
    """List the keys of all recipes; if something is chosen, of such recipes, with the values they have."""
    text = all_keys()
    if options.recipe or options.data or options.method or options.overrides:
        from mmb.cli.chosen_recipe import chosen_fragment
        from mmb.training import merge
        from mmb.training.recipes.key_help import key_help

        chosen = chosen_fragment(options)
        any_data = "name" not in chosen.get("data", {})
        entries = key_help(merge({"method": DEFAULT_METHOD, "data": {"name": "synthetic"}}, chosen))
        groups: dict[str, dict[str, dict[str, object]]] = {}
        for key, entry in entries.items():
            if not (any_data and key.startswith("data.")):
                groups.setdefault(key.partition(".")[0] if "." in key else "recipe", {})[key] = entry
        text = listing(groups)
    console.show(text)
    console.result({"help": text})
