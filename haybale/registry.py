"""Classes by name: each registers itself when it is defined, and entry points bring those of other packages."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import warnings
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from haybale.errors import InputError, UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """Named things of one kind, such as the rankers.

    An entry point of the ``group`` names a module, a class in one, or a package, whose modules are imported one by one:
    what they define registers itself with :meth:`add`. haybale declares its own packages in the same way. A module is
    imported when a name is not known yet: first the modules of haybale that are called like the name, such as ``bm25``
    for ``"bm25-doc"``, so that one ranker does not import all of them.

    Parameters
    ----------
    kind : str
        What the things are called in messages: ``"ranker"``.
    group : str
        The group of entry points: ``"haybale.rankers"``.
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._known: dict[str, T] = {}
        self._owners: dict[str, str] = {}  # the class that registered each name
        self._pending: list[tuple[EntryPoint, str | None]] | None = None  # modules not imported yet; None: all

    def add(self, name: str, value: T, source: Any) -> None:
        """Register a name; ``source`` is the class that registers, whose name must not be another's already."""
        before = self._known.get(name)
        owner = f"{source.__module__}.{source.__qualname__}"
        if before is not None and self._owners[name] != owner:
            raise InputError(
                f"{owner}: the {self.kind} {name!r} exists already: {self._owners[name]}; choose another name"
            )
        self._known[name], self._owners[name] = value, owner

    def find(self, name: str) -> T | None:
        """Return what has the name; None if no installed package has anything of that name."""
        while name not in self._known and self._load_next(name):
            pass
        return self._known.get(name)

    def __getitem__(self, name: str) -> T:
        found = self.find(name)
        if found is None:
            raise UnknownNameError(self.kind, name, list(self))
        return found

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None

    def __iter__(self) -> Any:
        """Iterate over all names, ordered by the module that registered them, those of haybale first."""
        while self._load_next():
            pass
        return iter(sorted(self._known, key=lambda name: self._place(self._owners[name])))

    @staticmethod
    def _place(owner: str) -> tuple[bool, str]:
        module = owner.rpartition(".")[0]
        return not module.startswith("haybale."), module

    def items(self) -> list[tuple[str, T]]:
        """Return all names, each with what has it."""
        return [(name, self._known[name]) for name in self]

    def _load_next(self, name: str = "") -> bool:
        """Import one more module, one that is called like the name if there is one; False if none is left."""
        if self._pending is None:
            entries = _entries(self.group)
            own = [(entry, module) for entry in entries if _is_own(entry) for module in _modules_of(entry)]
            self._pending = own + [(entry, None) for entry in entries if not _is_own(entry)]
        if not self._pending:
            return False
        called_like = [module is not None and _is_called_like(module, name) for _, module in self._pending]
        entry, module = self._pending.pop(called_like.index(True) if any(called_like) else 0)
        if module is not None:
            importlib.import_module(module)
            return True
        try:
            for module in _modules_of(entry):
                importlib.import_module(module)
            entry.load()
        except Exception as error:
            message = f"the {self.kind}s of {entry.value} cannot be loaded: {type(error).__name__}: {error}"
            warnings.warn(f"{message}; update or uninstall that package", stacklevel=4)
        return True


def _modules_of(entry: EntryPoint) -> list[str]:
    """Return the names of an entry point's modules: its own, and those in it if it is a package."""
    found = importlib.util.find_spec(entry.module)
    inside = pkgutil.iter_modules((found and found.submodule_search_locations) or [])
    return [entry.module, *(f"{entry.module}.{module.name}" for module in inside if not module.ispkg)]


def _is_called_like(module: str, name: str) -> bool:
    """Return whether a name begins with the last part of a module's name: ``bm25-doc`` with ``bm25``."""
    return name.startswith(module.rpartition(".")[2].replace("_", "-"))


def _entries(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, haybale's own first.

    A clone declares its own in ``pyproject.toml``, which is read if it is there: a clone need not be installed, and
    the metadata of an editable install may be older than its files.
    """
    found = sorted(entry_points(group=group), key=lambda entry: entry.name)
    own, others = [entry for entry in found if _is_own(entry)], [entry for entry in found if not _is_own(entry)]
    if (file := Path(__file__).parents[1] / "pyproject.toml").is_file():
        import tomllib

        project = tomllib.loads(file.read_text("utf-8")).get("project", {})
        if project.get("name") == "haybale":
            declared = project["entry-points"][group]
            own = [EntryPoint(name, declared[name], group) for name in sorted(declared)]
    return own + others


def _is_own(entry: EntryPoint) -> bool:
    return entry.value.partition(":")[0].partition(".")[0] == "haybale"


def undefined_methods(cls: type) -> list[str]:
    """Return the abstract methods that a class does not define; usable in ``__init_subclass__``, before ABC knows."""
    return [name for name in dir(cls) if getattr(getattr(cls, name, None), "__isabstractmethod__", False)]
