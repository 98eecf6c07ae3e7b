"""`mmb completion SHELL`: a script for the shell, made from the parser; completing then calls no Python."""

import argparse
from collections.abc import Mapping

from mmb.cli.console import Console
from mmb.cli.known_keys import keys_of, table
from mmb.cli.parser import COMMANDS, make_parsers

Words = Mapping[str, Mapping[str, list[str] | None]]
"""For each command, by option, the values it takes (None for files); under "" what may stand anywhere."""


def run_completion(options: argparse.Namespace, console: Console) -> None:
    """Print the script."""
    text = {"bash": bash, "zsh": zsh, "fish": fish}[options.shell](completions())
    console.show(text)
    console.result({"shell": options.shell, "script": text})


def completions() -> Words:
    """What can follow each command and each of its options."""
    _, parsers = make_parsers(list(COMMANDS))
    names = {
        "data": list(table()["data"]),
        "method": list(table()["method"]),
        "methods": list(table()["method"]),
    }
    found: dict[str, dict[str, list[str] | None]] = {}
    for command, parser in parsers.items():
        values: dict[str, list[str] | None] = {"": []}
        anywhere: list[str] = []
        for action in parser._actions:
            anywhere += [option for option in action.option_strings if option.startswith("--")]
            for option in action.option_strings if action.nargs != 0 else []:
                values[option] = list(action.choices) if action.choices else names.get(action.dest)
            if not action.option_strings and action.choices:
                anywhere += map(str, action.choices)
            if action.dest == "recipe":
                anywhere += [*names["data"], *(f"{key}=" for key in keys_of())]
        if command == "data":
            anywhere += ["list", "describe", "get", "prepare", *names["data"]]
        found[command] = {**values, "": anywhere}
    return found


def bash(words: Words) -> str:
    """For bash."""
    cases = [
        f'    "{command} {option}") words="{" ".join(values)}" ;;'
        if values
        else f'    "{command} {option}") compopt -o default; return ;;'
        for command, by_option in words.items()
        for option, values in by_option.items()
        if option
    ]
    cases += [
        f'    "{command} "*) words="{" ".join(by_option[""] or [])}" ;;'
        for command, by_option in words.items()
    ]
    return "\n".join(
        [
            '# for bash: eval "$(mmb completion bash)" in ~/.bashrc',
            "_mmb() {",
            '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" words=""',
            '  if [ "$COMP_CWORD" -eq 1 ]; then',
            f'    words="{" ".join(words)} --help --version"',
            "  else",
            '    case "${COMP_WORDS[1]} $previous" in',
            *cases,
            "    esac",
            "  fi",
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            '  case "${COMPREPLY[*]}" in *=) compopt -o nospace ;; esac',
            "}",
            "complete -o bashdefault -o default -F _mmb mmb",
        ]
    )


def zsh(words: Words) -> str:
    """For zsh."""
    cases = [
        f'    "{command} {option}") '
        + ("compadd -- " + " ".join(values) if values else "_files")
        + "; return ;;"
        for command, by_option in words.items()
        for option, values in by_option.items()
        if option
    ]
    for command, by_option in words.items():
        keys = [word for word in by_option[""] or [] if word.endswith("=")]
        others = [word for word in by_option[""] or [] if not word.endswith("=")]
        added = f"compadd -- {' '.join(others)}" + (f"; compadd -S '' -- {' '.join(keys)}" if keys else "")
        cases.append(f'    "{command} "*) {added}; _files ;;')
    return "\n".join(
        [
            "#compdef mmb",
            '# for zsh: eval "$(mmb completion zsh)" in ~/.zshrc, after compinit',
            "_mmb() {",
            "  if (( CURRENT == 2 )); then",
            f"    compadd -- {' '.join(words)} --help --version; return",
            "  fi",
            '  case "$words[2] $words[CURRENT-1]" in',
            *cases,
            "  esac",
            "}",
            'if [ "$funcstack[1]" = "_mmb" ]; then _mmb "$@"; else compdef _mmb mmb; fi',
        ]
    )


def fish(words: Words) -> str:
    """For fish."""
    lines = ["# for fish: mmb completion fish > ~/.config/fish/completions/mmb.fish"]
    lines += [
        f"complete -c mmb -n __fish_use_subcommand -f -a {command} -d '{text}'"
        for command, text in ((command, COMMANDS[command].replace("'", "\\'")) for command in words)
    ]
    for command, by_option in words.items():
        here = f"complete -c mmb -n '__fish_seen_subcommand_from {command}'"
        anywhere = by_option[""] or []
        for option in (word for word in anywhere if word.startswith("--")):
            values = by_option.get(option)
            takes = "" if option not in by_option else f" -xa '{' '.join(values)}'" if values else " -r"
            lines.append(f"{here} -l {option[2:]}{takes}")
        if plain := [word for word in anywhere if not word.startswith("--")]:
            lines.append(f"{here} -a '{' '.join(plain)}'")
    return "\n".join(lines)
