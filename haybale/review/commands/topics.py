"""``haybale topics``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import haybale
from haybale.cli import options
from haybale.cli.application import MORE, command
from haybale.cli.options import option
from haybale.cli.terminal import show
from haybale.errors import InputError

CHANGE = "Change a topic"  # a panel of the help


@command(MORE)
def topics(
    engine: options.EngineFolder,
    judgements: Annotated[
        Path | None, option("The file that keeps the judgements. Default: the one that the engine uses.", CHANGE)
    ] = None,
    topic: Annotated[str | None, option("The name of the topic to change. Default: list all topics.", CHANGE)] = None,
    rename: Annotated[str | None, option("Give it this name. Default: keep the name.", CHANGE)] = None,
    change: Annotated[
        Literal["close", "reopen", "delete", "restore"] | None,
        option("Close it for judging, delete it from lists and trainings, or undo this. Default: nothing.", CHANGE),
    ] = None,
    judge: Annotated[str, option("Who changes it. Default: nobody is named.", CHANGE)] = "",
) -> None:
    """List the topics of a file of judgements, or rename, close, delete or restore one of them.

    Every change is noted in the file, and nothing that was judged is lost.
    """
    from haybale.review import JudgementStore, judgement_file_of
    from haybale.review.topic_lifecycle import close_topic, delete_topic, reopen_topic, restore_topic, topic_status
    from haybale.review.topic_state import TopicState

    path = judgements or judgement_file_of(haybale.Engine.open(engine))
    if not path.is_file():
        raise InputError(f"{path}: expected a file of judgements, found none; give --judgements")
    if (change or rename) and topic is None:
        raise InputError("--topic must be given to change a topic, found no --topic; give its name")
    actions = {"close": close_topic, "reopen": reopen_topic, "delete": delete_topic, "restore": restore_topic}
    with JudgementStore(path) as store:
        chosen = store.topics() if topic is None else [store.topic(topic)]
        if change is not None:
            actions[change](store, chosen[0], judge)
        if rename is not None:
            store.rename(chosen[0], rename, judge)
        for listed_topic in map(store.current, chosen):
            state = TopicState(listed_topic.settings.get("combine", "any"), store.judgements(listed_topic))
            grades = [grade for doc_id in state.rows if (grade := state.grade(doc_id)) is not None]
            status = topic_status(store, listed_topic)
            marks = [mark for mark, is_so in (("closed", status.is_closed), ("deleted", status.is_deleted)) if is_so]
            name = listed_topic.name + (f" ({', '.join(marks)})" if marks else "")
            show(f"{name}: {len(grades):,} judged, {sum(grade > 0 for grade in grades):,} relevant")
