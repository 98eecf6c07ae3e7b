"""Recipe files, and the files they build on."""

from pathlib import Path
from typing import Any

from mmb._extras import require
from mmb.training.recipes.nested import Fragment, merge
from mmb.training.recipes.recipe import RecipeError


def read_recipe(path: Path | str) -> Fragment:
    """Read a recipe file and the files it builds on.

    `base: FILE` (or a list of files), relative to the recipe file, is read first; the recipe's own keys win.
    The nested recipe `pretrain` may have its own base.

    Args:
        path: YAML file.

    Returns:
        The merged fragment, not checked yet.

    Raises:
        RecipeError: If a file is missing, is not a mapping in YAML or builds on itself.
    """
    return _read(Path(path), ())


def _read(path: Path, above: tuple[Path, ...]) -> Fragment:
    """A recipe file with its base; `above` are the files that build on it."""
    yaml = require("yaml", extra="training")
    if path.resolve() in above:
        raise RecipeError(f"recipe {path} builds on itself: remove it from the base of one of {list(above)}")
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _loader(yaml))
    except FileNotFoundError as error:
        raise RecipeError(f"there is no recipe {path}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(f"recipe {path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise RecipeError(f"recipe {path} must be a mapping of keys to values, got {type(content).__name__}")
    return _with_base(content, path, (*above, path.resolve()))


def _loader(yaml: Any) -> Any:
    """The safe loader, which refuses a key that is there twice: YAML would take the last."""

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """A mapping in which every key is there once."""
            lines: dict[str, int] = {}
            for key, _ in node.value:
                name, line = str(key.value), key.start_mark.line + 1
                if name in lines:
                    raise yaml.YAMLError(
                        f"the key {name!r} is there twice, in lines {lines[name]} and {line}"
                    )
                lines[name] = line
            return super().construct_mapping(node, deep)

    return Loader


def _with_base(fragment: Fragment, path: Path, above: tuple[Path, ...]) -> Fragment:
    """The content of a recipe file on top of the files it builds on."""
    own = {key: value for key, value in fragment.items() if key != "base"}
    if isinstance(own.get("pretrain"), dict):
        own["pretrain"] = _with_base(own["pretrain"], path, above)
    bases = fragment.get("base", [])
    bases = bases if isinstance(bases, list) else [bases]
    merged: Fragment = {}
    for base in bases:
        if not isinstance(base, str):
            raise RecipeError(f"recipe {path}: base must be a file or a list of files, got {base!r}")
        merged = merge(merged, _read(path.parent / base, above))
    return merge(merged, own)
