"""Import the names of a package on their first use; its stub, ``__init__.pyi``, lists them."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attach_stub(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], dict[str, str]]:
    """Return ``__getattr__`` and ``__dir__`` of a package, and the module that defines each name of its stub.

    ``dir(package)``, from which notebooks complete names, lists the names of the stub and imports none of them.

    Parameters
    ----------
    package : str
        The ``__name__`` of the package.
    file : str
        The ``__file__`` of the package; the stub is the file with the same name and the suffix ``.pyi``.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text("utf-8"))
    module_of = {
        alias.name: f"{package}.{node.module}" if node.level else str(node.module)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted(module_of)

    return get, names, module_of
