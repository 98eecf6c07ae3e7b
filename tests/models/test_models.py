"""The package's namespace: what it exports, and nothing that hides a module."""

import importlib
import pkgutil

from mmb import models


def test_everything_exported_exists():
    for name in models.__all__:
        assert callable(getattr(models, name)), name


def test_no_export_hides_a_module():
    modules = [module.name for module in pkgutil.iter_modules(models.__path__)]
    assert not set(modules) & set(models.__all__)
    for name in modules:
        if name not in ("_message_kernels", "_layer_kernels", "_layer_steps"):  # need Triton
            module = importlib.import_module(f"mmb.models.{name}")
            assert getattr(models, name) is module
