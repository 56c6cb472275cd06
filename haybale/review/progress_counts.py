"""Count how far a review has come, and ask stopping rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from haybale.review.review_results import Progress
from haybale.review.topic_ranking import TopicRanking
from haybale.review.topic_state import TopicState

if TYPE_CHECKING:
    from haybale.review.stopping import StoppingRule

DEFAULT_RULES = ("consecutive", "cmh", "quant")  # stopping rules of progress
_LEARNED_GRADES = {  # by the rule of the topic, which grade the learner learns if judges contradict each other
    "any": "as relevant if one judge says so",
    "latest": "with the latest judgement",
    "majority": "with the median grade of the judges",
    "maximum": "with the highest grade",
}


def progress_of(
    ranking: TopicRanking,
    moves: Sequence[tuple[str, str]],
    rules: Sequence[str | StoppingRule] | None,
    n_duplicates: int = 0,
) -> Progress:
    """Return the progress of a topic, as :meth:`haybale.Review.progress` does.

    Parameters
    ----------
    ranking : TopicRanking
    moves : sequence of (str, str)
        The documents that were judged, and those where the judgements are now.
    rules : sequence of str or StoppingRule, or None
    n_duplicates : int, default 0
        Documents that are not read, because another one of their group is.
    """
    from haybale.review.stopping import parse_rule

    state, screening = ranking.state, ranking.screening()
    drawn = ranking.sample()
    chosen = [*DEFAULT_RULES, *(["qbcb"] if drawn else [])] if rules is None else rules
    parsed = [parse_rule(rule) if isinstance(rule, str) else rule for rule in chosen]
    judged = {doc_id: grades for doc_id in state.rows if (grades := state.grades(doc_id))}
    relevant_positions = np.flatnonzero(screening.labels)
    return Progress(
        n_documents=int(ranking.has_passage.sum()),
        n_duplicates=n_duplicates,
        n_judged=len(judged),
        n_relevant=sum((state.grade(doc_id) or 0) > 0 for doc_id in judged if doc_id not in state.waiting),
        n_known=sum(map(state.is_known, judged)),
        n_skipped=sum(map(state.is_skipped, state.rows)),
        n_since_relevant=screening.n_read - (int(relevant_positions[-1]) + 1 if len(relevant_positions) else 0),
        n_drawn=len(drawn),
        n_drawn_judged=sum(doc_id in judged for doc_id in drawn),
        n_waiting=len(state.waiting),
        double_share=state.plan.double_share,
        contradictory=sorted(filter(state.is_conflict, judged)),
        resolved=sorted(doc_id for doc_id in judged if state.resolution(doc_id) is not None),
        removed=sorted(doc_id for doc_id in judged if ranking.number(doc_id) is None),
        replaced=ranking.replaced(judged),
        undecided=sorted(filter(ranking.is_undecided, judged)),
        moved=ranking.present_moves(moves),
        learns_from=learns_from(state),
        advice={str(rule): rule.check(screening) for rule in parsed},
    )


def learns_from(state: TopicState) -> str:
    """Return in words which judgements the ranking learns from."""
    first = "each judgement at once, also the first of two judges" if state.plan.is_double else "each judgement at once"
    differing = f"a document that is judged differently counts {_LEARNED_GRADES[state.rule]}"
    return f"{first}; {differing}, until a resolution counts in place of the judgements"
