"""What a review returns: a document to judge, and how far the review has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from haybale.notebook import html_table
from haybale.review.judgement_store import Judgement
from haybale.search.search_hit import plain_metadata
from haybale.search.snippets import Snippet

if TYPE_CHECKING:
    import pandas as pd

    from haybale.review.stopping import Advice

_PASSAGE_CHARACTERS_IN_NOTEBOOK = 600
_COLUMNS = ["doc_id", "grade", "judge", "kind", "time", "seconds", "note", "passage_id", "rank", "model"]


@dataclass(frozen=True)
class ReviewDocument:
    """A document that a review proposes.

    Parameters
    ----------
    doc_id : str
    title : str
        The title of the document; its id if it has none.
    metadata : dict
        The metadata that the document has, by column.
    snippets : list of Snippet
        The passage by which it is ranked, with page or heading. Terms of the topic and terms that are typical of the
        relevant documents are marked.
    probability : float or None
        How likely it is relevant, from 0 to 1, as the learner estimates; None if another judge has judged it, because
        the learner's estimate would tell the grade.
    rank : int or None
        Its place among the documents to judge when it was first proposed, from 1; None for a document of the random
        sample, or that nobody has proposed.
    model : str
        What chose it: ``"learner"``, ``"learner, explored"`` or ``"random sample"``; empty if a judge did.
    near_duplicates : list of str
        Ids of similar documents that were not judged, if the review looks for them.
    duplicates : dict of str to str
        The other documents of its group of duplicates by their ids, with the file or the database of each.
    """

    doc_id: str
    title: str
    metadata: dict[str, Any]
    snippets: list[Snippet]
    probability: float | None
    rank: int | None
    model: str
    near_duplicates: list[str]
    duplicates: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; dates become ISO strings."""
        return {
            "doc_id": self.doc_id,
            "title": self.title,
            "metadata": plain_metadata(self.metadata),
            "snippets": [snippet.to_dict() for snippet in self.snippets],
            "probability": self.probability,
            "rank": self.rank,
            "model": self.model,
            "near_duplicates": self.near_duplicates,
            "duplicates": self.duplicates,
        }

    def _repr_html_(self) -> str:
        """Return title, place and passage for notebooks, with highlights as ``<mark>``."""
        likely = "" if self.probability is None else f" · {self.probability:.0%}"
        parts = [f"<b>{escape(self.title)}</b> <small>{escape(self.doc_id)}{likely}</small>"]
        for snippet in self.snippets:
            pieces = [(escape(text), marked) for text, marked in snippet.excerpt(_PASSAGE_CHARACTERS_IN_NOTEBOOK)]
            text = "".join(f"<mark>{piece}</mark>" if marked else piece for piece, marked in pieces)
            location = f"<small>{escape(snippet.place)}:</small> " if snippet.place else ""
            parts.append(f'<p dir="auto">{location}{text}</p>')
        return f"<div>{''.join(parts)}</div>"


@dataclass(frozen=True)
class Progress:
    """How far a review has come.

    Parameters
    ----------
    n_documents : int
        Documents to read: those of the engine that have a passage, and of each group of duplicates one.
    n_duplicates : int
        Documents that are not read, because another one of their group is.
    n_judged, n_relevant : int
        Judged documents, and the relevant ones among those that do not wait for a second judge.
    n_known : int
        Judged documents that the review did not propose: known from the start, or chosen by a judge.
    n_skipped : int
        Documents that were put off.
    n_since_relevant : int
        Proposed documents since the last relevant one.
    n_drawn, n_drawn_judged : int
        Documents of the random sample, and those of them that were judged.
    n_waiting : int
        Documents that need two judges, and that one has judged. Stopping rules take them as not read.
    double_share : float
        The share of the documents that need two judges; 0 in single screening.
    contradictory : list of str
        Ids of documents that one judge found relevant and another irrelevant, and that nobody has resolved.
    resolved : list of str
        Ids of documents whose conflict was resolved (:meth:`~haybale.review.judges.Judges.resolve`).
    removed : list of str
        Orphaned judgements: ids of judged documents that the engine no longer has, and whose text no other document
        has. They are kept and exported; the learner does not use them.
    replaced : list of str
        Ids of documents whose text is not the one that was judged. Their judgements are kept and exported, but the
        learner does not use them for the new text. Judge these documents again.
    undecided : list of str
        Ids of documents of which it is not known which text was judged: their rows were added without a digest.
    moved : dict of str to str
        Present ids of judged documents, by the ids under which they were judged, if these differ: the judgements
        followed the text.
    learns_from : str
        Which judgements the ranking learns from, in words.
    advice : dict of str to Advice
        What each stopping rule says, by its text: whether to stop, why, and the estimated recall with its bounds.
    """

    n_documents: int
    n_duplicates: int
    n_judged: int
    n_relevant: int
    n_known: int
    n_skipped: int
    n_since_relevant: int
    n_drawn: int
    n_drawn_judged: int
    n_waiting: int
    double_share: float
    contradictory: list[str]
    resolved: list[str]
    removed: list[str]
    replaced: list[str]
    undecided: list[str]
    moved: dict[str, str]
    learns_from: str
    advice: dict[str, Advice]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        counts = {name: value for name, value in self.to_dict().items() if name != "advice" and value not in ([], {})}
        rules = {name: f"{'stop' if advice.stop else 'go on'}: {advice.reason}" for name, advice in self.advice.items()}
        return html_table("Progress", ("what", "value"), (counts | rules).items())


def judgement_table(rows: Sequence[Judgement], status: Sequence[str]) -> pd.DataFrame:
    """Return the table of :meth:`haybale.Review.judgements`, given the rows that count and the status of each."""
    import pandas as pd

    frame = pd.DataFrame([[getattr(row, name) for name in _COLUMNS] for row in rows], columns=_COLUMNS)
    frame["is_resolution"], frame["status"] = [row.is_resolution for row in rows], list(status)
    frame["reasons"] = pd.Series([list(row.details.get("reason", ())) for row in rows], dtype=object)
    return frame.astype({"grade": int, "seconds": float, "rank": "Int64", "is_resolution": bool})
