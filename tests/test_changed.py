from pathlib import Path

import pytest

from changed import tests_of as found_for


@pytest.mark.parametrize(
    ("source", "tests"),
    [
        ("src/mmb/auc/labels.py", ["tests/auc/test_labels.py"]),
        ("src/mmb/_renamed.py", ["tests/test_renamed.py"]),
        ("tests/auc/test_labels.py", ["tests/auc/test_labels.py"]),
        ("tests/objective_bank.py", []),
        ("docs/index.md", []),
    ],
)
def test_tests_of_a_file_are_found_by_its_name(source, tests, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])
    assert found_for(Path(source)) == tests


def test_a_file_without_tests_of_its_name_has_those_of_its_folder(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])
    found = found_for(Path("src/mmb/auc/__init__.py"))
    assert "tests/auc/test_labels.py" in found
    assert found_for(Path("src/mmb/nowhere/at/all.py"))
