"""What rankers share that fuse the runs of others."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from haybale.errors import InputError
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.rankers.training import Training
from haybale.retrieval import Run


class Fusion(Ranker):
    """The base of rankers that fuse others, each fitted on the same queries and asked for ``depth`` documents."""

    rankers: tuple[Ranker, ...]
    depth: int

    def check_params(self) -> None:
        """Check as every ranker does; the fused rankers must differ."""
        super().check_params()
        strangers = [each for each in self.rankers if not isinstance(each, Ranker)]
        if strangers or not self.nested():
            found = repr(strangers[0]) if strangers else "none"
            raise InputError(f"{type(self).__name__} fuses rankers, found {found}")
        [(name, times)] = Counter(map(str, self.nested())).most_common(1)
        if times > 1:
            raise InputError(f"{type(self).__name__}: {name} is given twice; each ranker is fused once")

    @property
    def uses_vectors(self) -> bool:
        """False: only the rankers within use vectors."""
        return False

    def fit_batch(self, training: Training) -> None:
        self.__dict__.pop("_named", None)
        super().fit_batch(training)

    def _runs(self, batch: QueryBatch, depth: int = 0, *, out_of_fold: bool = False) -> dict[str, Run]:
        """Return each ranker's run, ``depth`` documents deep if that is more than are fused."""
        depth = max(depth, self.depth)
        return {
            name: ranker.run_out_of_fold(batch, depth) if out_of_fold else ranker.run(batch, depth)
            for name, ranker in self._named.items()
        }

    @cached_property
    def _named(self) -> dict[str, Ranker]:
        """The fitted rankers by name; cached, because writing the names can take longer than ranking."""
        return {str(ranker): ranker for ranker in self.rankers_}
