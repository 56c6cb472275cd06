"""Classes by name: each registers itself when it is defined, and entry points bring those of other packages."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from haybale.errors import InputError, UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """Named things of one kind, such as the rankers.

    An entry point of the ``group`` names a module, a class in one, or a package, whose modules are all imported: what
    they define registers itself with :meth:`add`. haybale declares its own packages in the same way. An entry point is
    loaded when a name is not known yet, those of haybale first, so a name that haybale has costs no other package.

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
        self._pending: list[EntryPoint] | None = None

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
        while name not in self._known and self._load_next():
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
        """Iterate over all names, in the order in which they were registered."""
        while self._load_next():
            pass
        return iter(list(self._known))

    def items(self) -> list[tuple[str, T]]:
        """Return all names, each with what has it."""
        return [(name, self._known[name]) for name in self]

    def _load_next(self) -> bool:
        """Load one more entry point; False if none is left."""
        if self._pending is None:
            self._pending = _entries(self.group)
        if not self._pending:
            return False
        entry = self._pending.pop(0)
        try:
            loaded = entry.load()
            if isinstance(loaded, ModuleType) and hasattr(loaded, "__path__"):
                for module in pkgutil.iter_modules(loaded.__path__):
                    if not module.ispkg:
                        importlib.import_module(f"{loaded.__name__}.{module.name}")
        except Exception as error:
            if _is_own(entry):
                raise
            message = f"the {self.kind}s of {entry.value} cannot be loaded: {type(error).__name__}: {error}"
            warnings.warn(message, stacklevel=4)
        return True


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
