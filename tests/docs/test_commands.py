"""Commands that the pages show are understood, and links of the README lead somewhere."""

import re

import pytest

from docs.conftest import ROOT
from mmb.cli.parser import COMMANDS, parse

TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown(path):
    """Lines of a page's plain code blocks that call `mmb`, without comments and the dots of placeholders."""
    for fence, block in re.findall(
        r"^```(.*?)\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    ):
        for line in [] if fence else block.splitlines():
            if found := re.match(r"(?:torchrun .*-m )?(mmb .*)", line.split("#")[0].strip()):
                yield found[1].replace("[RUN ...]", "RUN")


@pytest.mark.parametrize("line", sorted({line for path in TEXTS for line in shown(path)}))
def test_commands_are_understood(line):
    options = parse(line.split()[1:])
    assert options.command == line.split()[1]
    recipe = getattr(options, "recipe", None)
    assert recipe is None or "=" in recipe or (ROOT / recipe).exists()


def test_every_command_is_shown():
    lines = [line for path in TEXTS for line in shown(path)]
    assert {line.split()[1] for line in lines} == set(COMMANDS)


def test_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 5
    for link in links:
        assert (ROOT / link).exists(), link
