"""Collect the errors and warnings that users can meet from the source, and check what each one says.

    python -m support.messages [PATH …]    # from tests/: list the messages that do not say enough

A message names what is wrong (a value, a name, an option), says what was expected, and says what to do next. Where it
says ``expected …, found …``, ``must …, found …`` or ``did you mean``, the next step is to give what was expected.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import haybale
from haybale import errors

PACKAGE = Path(haybale.__file__).parent
RAISED = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.HaybaleError) and name != "MissingExtraError"
} | {"ValueError", "TypeError"}
MADE_OF_PARTS = {"UnknownNameError"}  # its message names the kind and the name, and lists the known ones
EXPECTED = re.compile(
    r"\b(expected|must|needs?|requires?|only|at least|at most|between|cannot|could not|unknown|known|did you mean|"
    r"already|missing|lacks|no longer|not|no|differs?|than|unlike|until|before|instead)\b"
)
COMPLETE = re.compile(
    r"\b(expected|must|needs?|requires?|takes)\b.*\b(found|got|has|is|are|lacks|have)\b|did you mean", re.S
)
STEP = re.compile(
    r"(?:^|[.;:,(] |\bor |\band |\bto |– )(?:please )?(?:add|ask|build|call|change|check|choose|close|convert|copy|"
    r"correct|create|delete|download|drop|embed|end|fit|free|give|index|install|judge|lower|make|merge|move|name|omit|open|pass|"
    r"pip install|put|raise|rank|read|rebuild|record|reduce|remove|rename|repeat|replace|report|restart|run|save|see|"
    r"select|set|shorten|split|start|store|train|try|tune|turn|unpack|update|upgrade|use|wait|write)\b",
    re.I,
)


@dataclass(frozen=True)
class Message:
    """A message in the source: where it is, what raises it, and its text with ``{}`` in place of values."""

    place: str
    kind: str
    text: str

    def shortcomings(self) -> list[str]:
        """Return what the message lacks."""
        if self.kind in MADE_OF_PARTS:
            return []
        found = []
        if not re.search(r"\{\}|['\"`]\w|--\w|\w\(|\w_\w|\w=", self.text):
            found.append("names no value, parameter or option")
        if not EXPECTED.search(self.text):
            found.append("does not say what was expected")
        if not COMPLETE.search(self.text) and not STEP.search(self.text):
            found.append("does not say what to do next")
        return found


def messages(paths: list[Path] | None = None) -> Iterator[Message]:
    """Yield every message of the package's files, in order."""
    files = [file for path in paths or [PACKAGE] for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (kind := _kind(node)):
                for text in _texts(node, kind, tree):
                    yield Message(f"{file.relative_to(PACKAGE.parent)}:{node.lineno}", kind, text)


def _kind(call: ast.Call) -> str | None:
    """Return the name of the error, or ``warning``; None if the call makes neither."""
    if isinstance(call.func, ast.Name) and call.func.id in RAISED:
        return call.func.id
    return "warning" if ast.unparse(call.func) == "warnings.warn" else None


def _texts(call: ast.Call, kind: str, tree: ast.Module) -> list[str]:
    """Return the texts that a call's message can be; none if it comes from elsewhere, such as another error."""
    position = 2 if kind == "FileFormatError" else 0
    if kind in MADE_OF_PARTS:
        return [ast.unparse(call)]
    if len(call.args) <= position:
        return []
    given = call.args[position]
    if isinstance(given, ast.Name):  # assigned in the same function just before
        before = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign | ast.AugAssign)
            and ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target) == given.id
            and call.lineno - 25 < node.lineno <= call.lineno
        ]
        texts = [_text(node.value) for node in before]
        joined = " ".join(text for text in texts if text)
        return [joined] if joined else []
    text = _text(given)
    return [text] if text and text != "{}" else []


def _text(node: ast.expr) -> str | None:
    """Return an expression's text, with ``{}`` for each value; None if it has no text of its own."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return "".join(_text(side) or "{}" for side in (node.left, node.right))
    if isinstance(node, ast.IfExp):
        return " ".join(filter(None, (_text(node.body), _text(node.orelse))))
    return None


def main() -> None:
    """Print each message that lacks something, with what it lacks."""
    listed = list(messages([Path(p).resolve() for p in sys.argv[1:]] or None))
    short = [(message, lacks) for message in listed if (lacks := message.shortcomings())]
    for message, lacks in short:
        print(f"{message.place}: {message.kind}: {message.text}\n    {'; '.join(lacks)}")
    print(f"{len(listed)} messages, {len(short)} to be improved")


if __name__ == "__main__":
    main()
