"""Read plain values from YAML, which is imported only where a ranker is read from a file."""

from __future__ import annotations

from typing import Any

import yaml

_MAX_LEVELS = 128  # of lists and objects in a text


def load_plain_yaml(text: str) -> Any:
    """Return the value of a YAML or JSON text; raise ValueError for a syntax error, aliases and deep nesting."""
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """A loader of plain values that refuses aliases and deep nesting."""

    _level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"the alias *{event.anchor} is not supported; write the value out")
        self._level += 1
        if self._level > _MAX_LEVELS:
            raise yaml.YAMLError(f"more than {_MAX_LEVELS} levels of lists and objects; nest fewer rankers")
        node = super().compose_node(parent, index)
        self._level -= 1
        return node
