import importlib.util
from pathlib import Path

import pytest
from filelock import FileLock
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

ROOT = Path(__file__).parents[2]


def hook(name):
    """A module that takes part in building the documentation."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "hooks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def formulas():
    """The hook that turns formulas into MathML."""
    return hook("formulas")


@pytest.fixture(scope="session")
def site(tmp_path_factory, request):
    """The documentation, built once for all test processes; a warning, such as a broken link, is an error."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / "site"
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "built").exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(ROOT)  # paths of included files start here
                patch.setenv("NO_MKDOCS_2_WARNING", "1")
                config = load_config("mkdocs.yml", strict=True, site_dir=str(folder))
                config.plugins.on_startup(command="build", dirty=False)
                try:
                    build(config)
                except Abort as error:
                    pytest.fail(f"{error} The captured log says why.", pytrace=False)
            (folder / "built").touch()
    return folder
