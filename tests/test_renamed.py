import importlib
import inspect

import pytest

from mmb._renamed import renamed_arguments, renamed_names


def test_an_old_name_says_the_new_one():
    look_up = renamed_names("mmb.x", {"Watch": "mmb.x.Observer"})
    with pytest.raises(ImportError, match=r"mmb\.x\.Observer"):
        look_up("Watch")
    with pytest.raises(AttributeError, match="other"):
        look_up("other")


def test_an_old_argument_says_the_new_one():
    class Thing:
        @renamed_arguments(momentum="beta")
        def __init__(self, *, beta: float = 0.1) -> None:
            self.beta = beta

    assert Thing(beta=0.5).beta == 0.5
    assert list(inspect.signature(Thing).parameters) == ["beta"]
    with pytest.raises(TypeError, match=r"Thing: .*'momentum'.*beta"):
        Thing(momentum=0.5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mmb.training.predict", "mmb.training"),
        ("mmb.training.tune", "mmb.training"),
        ("mmb.theory.practical", "mmb.theory"),
        ("mmb.auc.statements", "mmb.auc.as_problem"),
    ],
)
def test_a_module_that_has_moved_says_where(old, new):
    with pytest.raises(ModuleNotFoundError, match=f"import from {new}$"):
        importlib.import_module(old)
    importlib.import_module(new)


@pytest.mark.parametrize(
    ("package", "old", "new"),
    [
        ("mmb.data", "available", "available_datasets"),
        ("mmb.data", "options", "dataset_options"),
        ("mmb.metrics", "two_way_partial_auc", "two_way_pauc"),
        ("mmb.models", "available", "available_networks"),
        ("mmb.models", "options", "network_options"),
    ],
)
def test_packages_say_their_new_names(package, old, new):
    module = importlib.import_module(package)
    assert callable(getattr(module, new))
    with pytest.raises(ImportError, match=new):
        getattr(module, old)


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        importlib.import_module("mmb.training.nothing")
