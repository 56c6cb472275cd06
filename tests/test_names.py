"""The names of locals and parameters say what they hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import haybale

PACKAGE = Path(haybale.__file__).parent

# Words that say nothing about what a variable holds.
EMPTY = {"each", "found", "given", "known", "own", "place"}

# Where one of them is the public name of a parameter, or the word of a rule that smo.py and working_set.py follow.
PUBLIC = {
    ("analysis.py", "given"),
    ("collections/builder.py", "own"),
    ("collections/open.py", "given"),
    ("collections/queries.py", "given"),
    ("collections/queries.py", "own"),
    ("context/document_graph.py", "own"),
    ("context/neighbourhoods.py", "own"),
    ("context/relation_paths.py", "own"),
    ("context/surroundings.py", "own"),
    ("ensemble/kernel.py", "place"),
    ("ensemble/working_set.py", "place"),
    ("errors.py", "known"),
    ("retrieval/parm/paragraph_search.py", "found"),
    ("review/commands/review.py", "known"),
    ("review/review.py", "given"),
    ("review/review.py", "known"),
    ("review/simulation_results.py", "known"),
    ("service/open_reviews.py", "known"),
    ("service/pages/topic_pages.py", "known"),
    ("service/security.py", "given"),
    ("service/workspace.py", "known"),
}


def locals_of(function: ast.AST) -> Iterator[str]:
    """Yield the names of the parameters of a function, and those that it assigns."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_locals_say_what_they_hold() -> None:
    empty = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                file = path.relative_to(PACKAGE).as_posix()
                empty.update((file, name) for name in EMPTY.intersection(locals_of(node)))
    assert empty - PUBLIC == set()
    assert PUBLIC - empty == set(), "no longer needed"
