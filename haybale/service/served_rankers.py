"""The rankers of a service: those that it was started with, those that were trained since, and where they search."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from haybale.engine import Engine
from haybale.errors import HaybaleError, InputError, UnknownNameError
from haybale.review import JudgementStore
from haybale.review.engine_of_judgements import bind
from haybale.service.search_processes import SearchProcesses
from haybale.service.trainings import ModelTraining, Trainings

if TYPE_CHECKING:
    from haybale.rankers import Ranker

_LOGGER = logging.getLogger("haybale.service")


class ServedRankers:
    """Rankers by name, one of which is the default. Trained ones are added when they are accepted.

    Parameters
    ----------
    engine : Engine
    rankers : mapping of str to Ranker
        Fitted rankers. The first is the default.
    judgements : JudgementStore
        What trainings learn from.
    models : str or Path, optional
        The folder of trainings. Default: beside the store.
    processes : int, default 0
        The number of processes that search.
    """

    def __init__(
        self,
        engine: Engine,
        rankers: Mapping[str, Ranker],
        judgements: JudgementStore,
        models: str | Path | None = None,
        processes: int = 0,
    ) -> None:
        if not rankers:
            raise InputError("a workspace needs a ranker, found none; give rankers={'bm25': parse('bm25').fit(engine)}")
        for ranker in rankers.values():
            ranker._check_fitted()
            ranker._check_answers(None)
        bind(judgements, engine)
        self.engine = engine
        self.on_trained: Callable[..., None] = lambda what, **more: None  # called after something was done
        self._rankers, self._default = dict(rankers), next(iter(rankers))
        self._lock = threading.RLock()
        self._trainings: Trainings | None = None
        if engine.folder is not None and judgements.path is not None:
            path = judgements.path
            folder = path.with_name(f"{path.stem}-models") if models is None else Path(models)
            self._trainings = Trainings(folder, engine, path)
        self.processes = (
            SearchProcesses(engine, rankers, processes) if processes and engine.folder is not None else None
        )
        if self._trainings is not None:
            self._take_over_accepted()

    @property
    def rankers(self) -> list[str]:
        """The names of the rankers, the default first."""
        with self._lock:
            return [self._default, *(name for name in self._rankers if name != self._default)]

    def ranker(self, name: str | None = None) -> Ranker:
        """Return a ranker by its name, or the default; an unknown name raises UnknownNameError."""
        with self._lock:
            return self._rankers[self._chosen(name)]

    def _chosen(self, name: str | None) -> str:
        with self._lock:
            if name is not None and name not in self._rankers:
                raise UnknownNameError("ranker", name, self._rankers)
            return name or self._default

    # Training.

    def start_training(self, recipe: str | None = None, random_state: int = 0) -> ModelTraining:
        """Begin to train a ranker on the judgements of all topics, in a process of its own.

        The default ranker is what it is compared with, and stays the default until :meth:`accept`.

        Parameters
        ----------
        recipe : {"learned", "similar topics", "svr"}, optional
            What to train. Default: ``"learned"`` from 10 topics on, ``"similar topics"`` with one, else ``"svr"``; if
            nothing can be learned by it, a simpler one.
        random_state : int, default 0

        Raises
        ------
        InputError
            If a training is running, or the engine or the judgements are in memory only.
        """
        training = self._with_trainings().start(self.ranker(), recipe, random_state)
        self.on_trained("started", training=training.id, recipe=recipe, random_state=random_state)
        return training

    @property
    def can_train(self) -> bool:
        """Whether the engine and the judgements are in files, as training needs."""
        return self._trainings is not None

    def trainings(self) -> list[ModelTraining]:
        """Return all trainings, the last one first."""
        return [] if self._trainings is None else self._trainings.all()

    def training(self, number: int) -> ModelTraining:
        """Return a training with its progress or its result; an unknown number raises NotFoundError."""
        return self._with_trainings().get(number)

    def accept(self, number: int) -> str:
        """Make the ranker of a training the default ranker, and return its name."""
        trainings = self._with_trainings()
        model = trainings.model(number)
        with self._lock:
            trainings.accept(number)
            self._default = _trained_name(number)
            self._keep_trained(number, model)
            self.on_trained("accepted", training=number, ranker=self._default)
            return self._default

    def _keep_trained(self, number: int, model: Ranker) -> None:
        self._rankers[_trained_name(number)] = model
        if self.processes is not None:
            self.processes.add(_trained_name(number), self._with_trainings().model_folder(number))

    def revert(self) -> str:
        """Take the last acceptance back, and return the name of the ranker that is the default again."""
        trainings = self._with_trainings()
        with self._lock:
            trainings.revert()
            name = self._take_over_accepted()
            self.on_trained("reverted", ranker=name)
            return name

    def _take_over_accepted(self) -> str:
        """Make the ranker that was accepted last the default, if it can be loaded; otherwise the first one."""
        trainings = self._with_trainings()
        self._default = next(iter(self._rankers))
        for number in trainings.accepted():
            name = _trained_name(number)
            try:
                if name not in self._rankers:
                    self._keep_trained(number, trainings.model(number))
                self._default = name
            except (HaybaleError, OSError) as error:  # the engine was built again, or files are damaged
                _LOGGER.warning("training %d cannot be used: %s", number, error)
        return self._default

    def _with_trainings(self) -> Trainings:
        if self._trainings is None:
            raise InputError(
                "start_training() needs an engine in a folder and judgements in a file, found one in memory; use both"
            )
        return self._trainings

    def close(self) -> None:
        """End a running training, and the processes that search."""
        self.stop_processes()
        if self._trainings is not None:
            self._trainings.stop()

    # Processes.

    def start_processes(self) -> None:
        """Start the processes that search, without waiting until they are ready; searches run here until then."""
        if self.processes is not None:
            self.processes.start()

    def stop_processes(self) -> None:
        """End the processes that search; searches run here afterwards."""
        if self.processes is not None:
            self.processes.close()


def _trained_name(number: int) -> str:
    return f"trained {number}"
