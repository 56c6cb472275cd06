"""Every error and warning that a user can meet says what is wrong, what was expected and what to do next."""

from __future__ import annotations

import pytest
from support.messages import PACKAGE, Message, messages

ROOMS = sorted({path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")})


@pytest.mark.parametrize("room", ROOMS)
def test_messages_say_what_is_wrong_what_was_expected_and_the_next_step(room: str) -> None:
    short = {message: lacks for message in messages([PACKAGE / room]) if (lacks := message.shortcomings())}
    assert not short, "\n".join(f"{each.place}: {each.text!r} {', '.join(lacks)}" for each, lacks in short.items())


def test_the_messages_of_the_package_are_found() -> None:
    kinds = {message.kind for message in messages()}
    assert {"InputError", "FileFormatError", "StoreError", "UnknownNameError", "warning"} <= kinds


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("k must be a positive integer, found {}", []),
        ("{}: damaged", ["does not say what was expected", "does not say what to do next"]),
        ("no runs", ["names no value, parameter or option", "does not say what to do next"]),
        ("{} holds a store already; give a new folder", []),
    ],
)
def test_a_message_that_says_too_little_is_recognised(text: str, lacks: list[str]) -> None:
    assert Message("here", "InputError", text).shortcomings() == lacks
