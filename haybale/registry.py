"""Register classes by name: each registers itself when it is defined, and entry points load those of other packages."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import warnings
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from haybale.errors import HaybaleError, InputError, UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """A mapping from names to objects of one kind, such as rankers.

    An entry point of the ``group`` names a module, a class in a module, or a package, whose modules are all imported.
    The classes register themselves with :meth:`add`. haybale declares its own packages as entry points too. Modules are
    imported one by one until a name is found. The modules of haybale whose name begins the wanted name, such as
    ``bm25`` for ``"bm25-doc"``, are imported first, so that one ranker does not import all of them.

    Parameters
    ----------
    kind : str
        The kind of the objects, for error messages, such as ``"ranker"``.
    group : str
        The group of entry points, such as ``"haybale.rankers"``.
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._known: dict[str, T] = {}
        self._owners: dict[str, str] = {}  # the class that registered each name
        # The entry points and modules that are not imported yet; a module is None to import all of an entry point.
        self._pending: list[tuple[EntryPoint, str | None]] | None = None

    def add(self, name: str, value: T, source: Any) -> None:
        """Register a name for the class ``source``; a name that another class has registered is an error."""
        owner = f"{source.__module__}.{source.__qualname__}"
        if name in self._known and self._owners[name] != owner:
            raise InputError(
                f"{owner}: the {self.kind} {name!r} exists already: {self._owners[name]}; choose another name"
            )
        self._known[name], self._owners[name] = value, owner

    def find(self, name: str) -> T | None:
        """Return the object of that name, or None if no installed package has registered one."""
        while name not in self._known and self._load_next(name):
            pass
        return self._known.get(name)

    def __getitem__(self, name: str) -> T:
        registered = self.find(name)
        if registered is None:
            raise UnknownNameError(self.kind, name, list(self))
        return registered

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None

    def __iter__(self) -> Any:
        """Iterate over all names, sorted by the module that registered them, those of haybale first."""
        while self._load_next():
            pass
        modules = {name: owner.rpartition(".")[0] for name, owner in self._owners.items()}
        return iter(sorted(self._known, key=lambda name: (not modules[name].startswith("haybale."), modules[name])))

    def items(self) -> list[tuple[str, T]]:
        """Return all pairs of a name and its object."""
        return [(name, self._known[name]) for name in self]

    def _load_next(self, name: str = "") -> bool:
        """Import one more module, preferably one whose name begins ``name``; return False if there is none."""
        if self._pending is None:
            entries = _entries(self.group)
            of_haybale = [(entry, module) for entry in entries if _is_own(entry) for module in _modules_of(entry)]
            self._pending = of_haybale + [(entry, None) for entry in entries if not _is_own(entry)]
        if not self._pending:
            return False
        preferred = [module is not None and _begins(module, name) for _, module in self._pending]
        entry, module = self._pending.pop(preferred.index(True) if any(preferred) else 0)
        if module is not None:
            importlib.import_module(module)
            return True
        try:
            for module in _modules_of(entry):
                importlib.import_module(module)
            entry.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            message = f"the {self.kind}s of {entry.value} cannot be loaded: {reason}; update that package or remove it"
            warnings.warn(message, stacklevel=4)
        return True


def _modules_of(entry: EntryPoint) -> list[str]:
    """Return the module that an entry point names and, if it is a package, the modules in it."""
    spec = importlib.util.find_spec(entry.module)
    inside = pkgutil.iter_modules((spec and spec.submodule_search_locations) or [])
    return [entry.module, *(f"{entry.module}.{module.name}" for module in inside if not module.ispkg)]


def _begins(module: str, name: str) -> bool:
    """Return whether the last part of a module's name begins a name, such as ``bm25`` and ``bm25-doc``."""
    return name.startswith(module.rpartition(".")[2].replace("_", "-"))


def _entries(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, those of haybale first.

    In a clone of the repository, those of haybale are read from ``pyproject.toml``: a clone need not be installed, and
    the metadata of an editable installation may be outdated.
    """
    installed = sorted(entry_points(group=group), key=lambda entry: entry.name)
    of_haybale = [entry for entry in installed if _is_own(entry)]
    others = [entry for entry in installed if not _is_own(entry)]
    if (file := Path(__file__).parents[1] / "pyproject.toml").is_file():
        import tomllib

        project = tomllib.loads(file.read_text("utf-8")).get("project", {})
        if project.get("name") == "haybale":
            declared = project["entry-points"][group]
            of_haybale = [EntryPoint(name, declared[name], group) for name in sorted(declared)]
    if not of_haybale:
        raise HaybaleError(
            f"{Path(__file__).parent}: expected an installed package or a clone of the repository, found neither, so "
            f"nothing is registered in {group}; install haybale, or copy its pyproject.toml beside that folder"
        )
    return of_haybale + others


def _is_own(entry: EntryPoint) -> bool:
    return entry.value.partition(":")[0].partition(".")[0] == "haybale"


def undefined_methods(cls: type) -> list[str]:
    """Return the abstract methods that a class does not define; unlike ABC, it works in ``__init_subclass__``."""
    return [name for name in dir(cls) if getattr(getattr(cls, name, None), "__isabstractmethod__", False)]
