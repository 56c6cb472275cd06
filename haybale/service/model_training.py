"""Train a ranker on the judged topics of a store, and compare it with the one before: the work of a training process.

``python -m haybale.service.model_training FOLDER`` reads ``FOLDER/request.json``. It replaces ``FOLDER/progress.json``
while it works, and writes ``FOLDER/model`` and then ``FOLDER/result.json``, or ``FOLDER/error.json``.

Two questions are answered, each by folds, with rankers that have not seen what they are measured on:

``"new topics"``
    How are topics ranked that the ranker has not learned from? Needs two topics.
``"held-back half"``
    How are the other relevant documents of a topic ranked, after half of its judgements were learned? Both halves are
    held back in turn, and documents that were learned are left out. Needs a topic with two relevant documents.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from haybale.collections.query_groups import words_key
from haybale.engine import Engine
from haybale.errors import HaybaleError, InputError
from haybale.folders import replace_json
from haybale.rankers import Ranker, from_spec, load, parse
from haybale.retrieval import Run
from haybale.review import JudgementStore, judged_topics
from haybale.service.training_readiness import RECIPES, simpler_recipes, training_readiness
from haybale.text_files import read_json
from haybale.timing import record_timings

if TYPE_CHECKING:
    import pandas as pd

MEASURES = ("nDCG@10", "Recall@100")
_STEPS = ("read judgements", "learn", "rank new topics", "rank held-back halves", "save")

Judged = tuple[dict[str, str], "pd.DataFrame"]


def train(
    engine: Engine,
    judged: Judged,
    before: Ranker,
    recipe: str,
    random_state: int = 0,
    report: Callable[[str], None] = lambda step: None,
) -> tuple[Ranker, dict[str, Any]]:
    """Train a ranker on judged topics, and compare it with another.

    Parameters
    ----------
    engine : Engine
    judged : (queries, qrels)
        As :func:`~haybale.review.judged_topics` returns them.
    before : Ranker
        The ranker to compare with. If it has learned from a topic, it is trained anew within each fold.
    recipe : {"learned", "similar topics", "svr"}
    random_state : int, default 0
        Divides the judgements of each topic into halves.
    report : callable, optional
        Called with the name of each step that begins.

    Returns
    -------
    ranker : Ranker
        Fitted on all judgements.
    result : dict
        ``recipe``, ``ranker``, ``before``, ``n_topics``, ``n_judgements``, and ``questions``: for each question that
        can be answered, ``n_topics`` and, by measure, ``before``, ``after``, ``difference``, ``p`` (the larger one of
        the paired t-test and the randomisation test) and ``topics`` (both values of each). ``unanswered`` has the
        others, with the reason.

    Raises
    ------
    InputError
        If the judgements are too few for the recipe (:mod:`~haybale.service.training_readiness`).
    """
    queries, qrels = judged
    readiness = training_readiness(engine, queries, qrels)
    readiness.check(recipe)
    question_of = {name: words_key(text) for name, text in queries.items()}
    report("learn")
    after = parse(RECIPES[recipe])
    trained = parse(RECIPES[recipe]).fit(engine, queries, qrels)
    knows = bool(before.learned_from() & queries.keys())

    def on_new_topics() -> dict[str, Any]:
        earlier = from_spec(before.to_dict()).fit(engine, queries, qrels) if knows else before
        runs = [earlier.out_of_fold(queries) if knows else before.rank(queries), trained.out_of_fold(queries)]
        return _compared([(run, qrels) for run in runs])

    def on_held_back_halves() -> dict[str, Any]:
        halves = _halves(qrels, question_of, random_state)
        measured: list[list[tuple[pd.DataFrame, pd.DataFrame]]] = [[], []]
        for learned, held_back in (halves, halves[::-1]):
            names = set(learned["query_id"]) & set(held_back.loc[held_back["relevance"] > 0, "query_id"])
            texts = {name: text for name, text in queries.items() if name in names}
            learned_texts = {name: text for name, text in queries.items() if name in set(learned["query_id"])}
            for number, ranker in enumerate((before, after)):
                if number or knows:
                    ranker = from_spec(ranker.to_dict()).fit(engine, learned_texts, learned)
                measured[number].append(
                    (_without(ranker.rank(texts), learned, question_of), held_back[held_back.query_id.isin(names)])
                )
        return _compared(*zip(*measured, strict=True))

    questions, unanswered = {}, {}
    answers = {"new topics": on_new_topics, "held-back half": on_held_back_halves}
    for step, (question, answer) in zip(_STEPS[2:4], answers.items(), strict=True):
        report(step)
        try:
            readiness.check_question(question)
            questions[question] = answer()
        except InputError as error:  # such as a fold in which nothing can be learned
            unanswered[question] = str(error)
    about = {"recipe": recipe, "ranker": str(trained), "before": str(before), "unanswered": unanswered}
    return trained, about | {"n_topics": len(queries), "n_judgements": len(qrels), "questions": questions}


def train_default(
    engine: Engine,
    judged: Judged,
    before: Ranker,
    random_state: int = 0,
    report: Callable[[str], None] = lambda step: None,
) -> tuple[Ranker, dict[str, Any]]:
    """Train the recipe that fits the judgements; if nothing can be learned by it, train a simpler one.

    ``result["instead_of"]`` has the recipes that could not be trained, with the reasons. The parameters are those of
    :func:`train`.
    """
    readiness, instead_of = training_readiness(engine, *judged), dict[str, str]()
    readiness.check(None)
    for recipe in (readiness.default, *simpler_recipes(readiness.default)):
        try:
            trained, result = train(engine, judged, before, recipe, random_state, report)
            return trained, result | {"instead_of": instead_of}
        except InputError as error:  # such as relevant documents that no search finds by the topics' texts
            instead_of[recipe] = str(error)
    raise InputError(instead_of[readiness.default])


def _halves(
    qrels: pd.DataFrame, question_of: Mapping[str, str], random_state: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two halves of the judgements of topics with two relevant documents, each with half of these.

    Topics with the same question are divided as one: what one of them holds back is not learned from another.
    """
    random = np.random.default_rng(random_state)
    parts = np.zeros(len(qrels), dtype=int)
    relevant, documents = qrels["relevance"].to_numpy() > 0, qrels["doc_id"].to_numpy()
    enough = np.zeros(len(qrels), dtype=bool)
    questions = qrels["query_id"].map(question_of)
    for question in questions.unique():
        of_question = (questions == question).to_numpy()
        for of_grade in (of_question & relevant, of_question & ~relevant):
            rows = np.flatnonzero(of_grade)
            firsts = rows[~qrels["doc_id"].iloc[rows].duplicated().to_numpy()]  # one for each document
            held_back = documents[random.permutation(firsts)[1::2]]
            parts[rows[np.isin(documents[rows], held_back)]] = 1
        enough |= of_question & (len(set(documents[of_question & relevant])) > 1)
    return qrels[enough & (parts == 0)], qrels[enough & (parts == 1)]


def _without(run: Run, learned: pd.DataFrame, question_of: Mapping[str, str]) -> pd.DataFrame:
    """Return a run as a frame, without the documents that were learned for its queries or for the same questions."""
    frame = run.to_frame()
    learned_pairs = set(zip(learned["query_id"].map(question_of), learned["doc_id"], strict=True))
    pairs = zip(frame["query_id"].map(question_of), frame["doc_id"], strict=True)
    return frame[np.array([pair not in learned_pairs for pair in pairs], dtype=bool)]


def _compared(*folds: Any) -> dict[str, Any]:
    """Compare two rankers by the mean of their values in the folds; a fold is two pairs of a run and judgements."""
    import pandas as pd

    from haybale.evaluation import evaluate
    from haybale.evaluation.significance import paired_tests

    before, after = (
        pd.concat([evaluate(fold[number][0], fold[number][1], MEASURES) for fold in folds]).groupby(level=0).mean()
        for number in (0, 1)
    )
    after = after.loc[before.index]
    comparison: dict[str, Any] = {"n_topics": len(before), "measures": {}}
    for name in MEASURES:
        one, two = before[name].to_numpy(), after[name].to_numpy()
        tested = paired_tests(two, one)
        comparison["measures"][name] = {
            "before": float(one.mean()),
            "after": float(two.mean()),
            "difference": tested.difference,
            "p": tested.p if len(before) > 1 else None,
            "topics": {str(topic): [float(a), float(b)] for topic, a, b in zip(before.index, one, two, strict=True)},
        }
    return comparison


def run(folder: Path) -> None:
    """Do what ``request.json`` in a folder asks for."""
    request = read_json(folder / "request.json")

    def report(step: str, stage: str = "") -> None:
        progress = {"step": step, "stage": stage, "done": _STEPS.index(step), "steps": len(_STEPS)}
        with suppress(OSError):  # a training goes on if its progress cannot be written
            replace_json(folder / "progress.json", progress)

    now = [_STEPS[0]]

    def begin(step: str) -> None:
        now[0] = step
        report(step)

    begin("read judgements")
    with record_timings(lambda stage, seconds: report(now[0], f"{stage}, {seconds:.1f} s")):
        engine = Engine.open(request["engine"])
        before = load(folder / "before", engine)
        with JudgementStore(request["judgements"]) as store:
            judged = judged_topics(store, engine)
        seed = request["random_state"]
        if request["recipe"] is None:
            trained, result = train_default(engine, judged, before, seed, begin)
        else:
            trained, result = train(engine, judged, before, request["recipe"], seed, begin)
        begin("save")
        trained.save(folder / "model")
        replace_json(folder / "result.json", result)


def main() -> None:
    """Train as the command line says; an error is written to the folder."""
    folder = Path(sys.argv[1])
    os.nice(10)  # lets searches have the processor first
    warnings.simplefilter("ignore")
    try:
        run(folder)
    except HaybaleError as error:
        _note(folder, str(error))
        raise SystemExit(1) from None
    except OSError as error:
        _note(folder, f"a file cannot be read or written: {error.strerror or error}; make room, and start it again")
        raise
    except BaseException:
        _note(folder, "the training has failed; training.log says why")
        raise


def _note(folder: Path, detail: str) -> None:
    """Write why a training has failed, if the disk has room for it."""
    with suppress(OSError):
        replace_json(folder / "error.json", {"detail": detail})


if __name__ == "__main__":
    main()
