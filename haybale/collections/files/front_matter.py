"""Read the YAML front matter of a Markdown file: the entries between lines of three hyphens at its beginning."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from haybale.collections.unread import UnreadPart

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S | re.M)
_NULL = ("", "~", "null", "Null", "NULL")  # what YAML 1.2 reads as no value


class FrontMatter(NamedTuple):
    """The front matter of a text.

    ``entries`` are its values, as they are written: texts, lists and mappings of texts, and None. ``text`` is the front
    matter itself if it could not be read, and ``unread`` says why; ``end`` is where the body begins.
    """

    entries: dict[str, Any]
    text: str
    end: int
    unread: UnreadPart | None


def read_front_matter(text: str) -> FrontMatter:
    r"""Read the front matter of a text.

    Values keep their text: ``NO`` is no truth value, and ``01234`` is no number. Front matter that is not valid YAML
    stays a text, and the reason is returned. A beginning that has no entries, such as a paragraph between two lines, is
    no front matter.

    >>> read_front_matter("---\ncountry: NO\nzip: 01234\n---\nThe rent.").entries
    {'country': 'NO', 'zip': '01234'}
    >>> print(read_front_matter("---\ntitle: Lease: a dispute\n---\n").unread)
    front matter: read as text: expected YAML, found in line 2: mapping values are not allowed here; quote the value
    """
    match = _FRONT_MATTER.match(text)
    if match is None:
        return FrontMatter({}, "", 0, None)
    import yaml

    entries: Any = None
    try:
        node = yaml.compose(match[1], yaml.BaseLoader)
        if isinstance(node, yaml.MappingNode):
            entries = _value_of(node, set())
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 2}"
        return _invalid(match, f"expected YAML, found{line}: {error.problem}; quote the value")
    except (yaml.YAMLError, _OtherYAMLError, RecursionError) as error:
        return _invalid(match, f"expected YAML, found an error: {' '.join(str(error).split()):.200}; correct it")
    return FrontMatter({}, "", 0, None) if entries is None else FrontMatter(entries, "", match.end(), None)


class _OtherYAMLError(ValueError):
    """YAML that front matter must not have."""


def _invalid(match: re.Match[str], reason: str) -> FrontMatter:
    unread = UnreadPart(part="front matter", reason=f"read as text: {reason}")
    return FrontMatter({}, match[1].strip(), match.end(), unread)


def _value_of(node: Any, read_nodes: set[int]) -> Any:
    """Return the value of a node: a text, a list or a mapping; None for a plain null.

    ``read_nodes`` are the ids of the nodes that were read before: only an alias leads to one of them again.
    """
    import yaml

    if id(node) in read_nodes:
        raise _OtherYAMLError("an alias, which could expand to any size")
    read_nodes.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        return None if node.style is None and node.value in _NULL else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_value_of(item, read_nodes) for item in node.value]
    entries: dict[str, Any] = {}
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else str(_value_of(key, read_nodes))
        if name in entries:
            raise _OtherYAMLError(f"the key {name!r} twice")
        entries[name] = _value_of(value, read_nodes)
    return entries
