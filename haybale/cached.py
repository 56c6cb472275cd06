"""Cached properties that hold no lock while their value is computed.

Those of Python 3.11 have one lock for all objects of a class: threads that use different objects wait for each other,
and for ever if one of them also needs a lock that another holds, such as that of an engine. Later versions have none.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:  # type checkers know this one
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property[T]):
        """A property that is computed once; if several threads compute it at once, all get the first value.

        >>> class Text(str):
        ...     @cached_property
        ...     def words(self):
        ...         return self.split()
        >>> text = Text("computed once")
        >>> text.words is text.words
        True
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            values = vars(instance)
            value = values.get(self.attrname, values)  # the dictionary itself stands for a missing value
            return values.setdefault(self.attrname, self.func(instance)) if value is values else value
