"""Which arguments a function takes by name."""

import sys

import pytest

from mmb._signatures import arguments_of, check_options, takes_any
from own_parts import Base, Child, build, build_child, build_hidden


def picks(**options):
    """Takes one option by its name."""
    return options.get("rows", 5)


def adds(first: int, *others: int, last: int = 3):
    """Has no keywords beyond its own."""
    return first + sum(others) + last


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (build, ["num_inputs", "num_tasks", "width"]),
        (Base, ["num_inputs", "num_tasks", "width"]),
        (Child, ["scale", "num_inputs", "num_tasks", "width"]),
        (build_child, ["scale", "num_inputs", "num_tasks", "width"]),
        (picks, ["rows"]),
        (adds, ["first", "last"]),
        (build_hidden, []),
    ],
)
def test_arguments_include_those_that_kwargs_pass_on(function, names):
    assert list(arguments_of(function)) == names
    assert takes_any(function) == (function is build_hidden)


def test_types_and_defaults_come_along():
    found = arguments_of(build_child)
    assert (found["scale"].annotation, found["scale"].default) == (float, 2.0)
    assert found["num_inputs"].default is found["num_inputs"].empty


def test_unknown_options_are_refused_unless_any_will_do():
    with pytest.raises(ValueError, match=r"the thing.*'witdh'.*'width'"):
        check_options("the thing", build, ["witdh"], arguments_of(build))
    check_options("the thing", build_hidden, ["witdh"], arguments_of(build_hidden))


def test_only_kwargs_need_an_extra(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "jsonargparse"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jsonargparse", None)
    assert list(arguments_of(build)) == ["num_inputs", "num_tasks", "width"]
    with pytest.raises(ImportError, match=r"mmb\[training\]"):
        arguments_of(Child)
