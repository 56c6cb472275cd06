"""The protocol of a topic's review: criteria, reasons for exclusion, keywords and stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from haybale.collections.ids import as_ids
from haybale.errors import InputError, UnknownNameError
from haybale.review.judgement_store import JudgementStore, Topic, TopicEvent
from haybale.review.keywords import MAX_CHARACTERS, MAX_KEYWORDS
from haybale.review.topic_state import FULL_TEXT

NOT_RETRIEVED = "not retrieved"  # the reason of a report that nobody could get, in the stage of full texts
MAX_CRITERIA = 100_000  # characters
_TEXTS = ("inclusion_criteria", "exclusion_criteria")
_LISTS = ("exclusion_reasons", "include_keywords", "exclude_keywords")


@dataclass(frozen=True)
class ReviewProtocol:
    """What people agreed about a topic's review.

    Parameters
    ----------
    inclusion_criteria, exclusion_criteria : str
        Texts in Markdown, shown beside each record.
    exclusion_reasons : tuple of str
        The reasons for exclusion to choose from. A judgement may have others.
    include_keywords, exclude_keywords : tuple of str
        Whole words that are marked in records; ``*`` at the end stands for any ending.
    n_stages : {1, 2}
        1: a record is judged once. 2: what is included by title and abstract is judged again by its full text.
    criteria_as_query : bool
        Whether the criteria for inclusion are a query of the ranking, beside the topic's text.
    """

    inclusion_criteria: str = ""
    exclusion_criteria: str = ""
    exclusion_reasons: tuple[str, ...] = ()
    include_keywords: tuple[str, ...] = ()
    exclude_keywords: tuple[str, ...] = ()
    n_stages: int = 1
    criteria_as_query: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def query_text(self, text: str) -> str:
        """Return what the ranking looks for: the topic's text, with the criteria for inclusion if they are a query."""
        criteria = self.inclusion_criteria if self.criteria_as_query else ""
        return "\n\n".join(part for part in (text, criteria.strip()) if part)


_NAMES = tuple(field.name for field in fields(ReviewProtocol))


def protocol_of(store: JudgementStore, topic: Topic) -> ReviewProtocol:
    """Return the protocol of a topic as it is now."""
    values: dict[str, Any] = {
        event.kind: event.value for event in store.events(topic, latest=True) if event.kind in _NAMES
    }
    return ReviewProtocol(**values | {name: tuple(values.get(name, ())) for name in _LISTS})


def protocol_versions(store: JudgementStore, topic: Topic) -> list[TopicEvent]:
    """Return every change of a topic's protocol, in order: what was changed, to what, by whom and when."""
    return [event for event in store.events(topic) if event.kind in _NAMES]


def change_protocol(store: JudgementStore, topic: Topic, changes: Mapping[str, Any], judge: str = "") -> ReviewProtocol:
    """Change a topic's protocol, and return it. Earlier versions are kept (:func:`protocol_versions`).

    Parameters
    ----------
    store : JudgementStore
    topic : Topic
    changes : mapping of str to object
        New values by the names of :class:`ReviewProtocol`. What equals the present value is left out.
    judge : str, default ""
        Who changes it.

    Raises
    ------
    UnknownNameError
        For a name that a protocol does not have.
    InputError
        For a value of another type, or one stage for a topic with judgements of full texts. Nothing is changed then.
    """
    for name in changes:
        if name not in _NAMES:
            raise UnknownNameError("part of a protocol", name, _NAMES)
    present = protocol_of(store, topic)
    checked = {name: _checked(name, value) for name, value in changes.items()}
    if checked.get("n_stages", 2) == 1 and present.n_stages == 2:
        n_full_texts = sum(row.details.get("stage") == FULL_TEXT for row in store.judgements(topic))
        if n_full_texts:
            raise InputError(
                f"n_stages must stay 2, found 1 with {n_full_texts:,} judgements of full texts; keep both stages"
            )
    for name, value in checked.items():
        if value != getattr(present, name):
            store.record(topic, name, list(value) if name in _LISTS else value, judge)
    return protocol_of(store, topic)


def _checked(name: str, value: Any) -> Any:
    """Return a value of a protocol in its type."""
    if name in _TEXTS:
        if not isinstance(value, str) or len(value) > MAX_CRITERIA:
            raise InputError(f"{name} must be a text of at most {MAX_CRITERIA:,} characters, found {value!r:.80}")
        return value.replace("\r\n", "\n").strip()
    if name in _LISTS:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise InputError(f"{name} must be a list of texts, found {value!r:.80}; use [{value!r:.80}]")
        return _lines(name, list(value))
    if name == "n_stages":
        if isinstance(value, bool) or value not in (1, 2):
            raise InputError(f"n_stages must be 1 or 2, found {value!r}")
        return int(value)
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, found {value!r}")
    return value


def _lines(name: str, values: Sequence[Any]) -> tuple[str, ...]:
    """Return texts without white space around them, each once; InputError is raised for too long or too many ones."""
    texts = tuple(dict.fromkeys(" ".join(text.split()) for text in as_ids(values, name) if text.strip()))
    too_long = [text for text in texts if len(text) > MAX_CHARACTERS]
    if too_long or len(texts) > MAX_KEYWORDS:
        surplus = f"one of {len(too_long[0]):,} characters" if too_long else f"{len(texts):,}"
        raise InputError(f"{name} must be at most {MAX_KEYWORDS} texts of {MAX_CHARACTERS} characters, found {surplus}")
    return texts


def reason_details(grade: int, reasons: Sequence[str], stage: str | None = None) -> dict[str, Any]:
    """Return the details of a judgement: its reasons for exclusion, the main one first, and its stage.

    >>> reason_details(0, ["wrong population"])
    {'reason': ['wrong population']}
    """
    texts = list(_checked("exclusion_reasons", reasons))
    if texts and grade > 0:
        raise InputError(
            f"reasons must be for an irrelevant document, found {texts[0]!r} with grade {grade}; leave them out"
        )
    return ({"reason": texts} if texts else {}) | ({} if stage is None else {"stage": stage})
