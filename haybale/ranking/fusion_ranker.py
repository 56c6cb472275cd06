"""The base class of rankers that fuse the runs of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from haybale.cached import cached_property
from haybale.errors import InputError
from haybale.ranking.ranker import Ranker
from haybale.ranking.runs import runs_of
from haybale.ranking.training import Training
from haybale.retrieval import Run
from haybale.search.query_batch import QueryBatch

_QUERIES_FUSED_AT_ONCE = 512


class Fusion(Ranker):
    """The base of rankers that fuse the first ``depth`` documents of others."""

    rankers: tuple[Ranker, ...]
    depth: int
    obeys_cutoffs = True

    def _check_params(self) -> None:
        """Check parameters as every ranker does; there must be rankers, and all different."""
        super()._check_params()
        others = [ranker for ranker in self.rankers if not isinstance(ranker, Ranker)]
        if others or not self.nested():
            first_other = repr(others[0]) if others else "none"
            raise InputError(f"{type(self).__name__} needs rankers to fuse, found {first_other}")
        [(name, times)] = Counter(map(str, self.nested())).most_common(1)
        if times > 1:
            raise InputError(f"{type(self).__name__} must fuse different rankers, found {name} twice")

    @property
    def uses_vectors(self) -> bool:
        """False: only nested rankers use vectors."""
        return False

    @property
    def _ranks_whole_batches(self) -> bool:
        """Whether one of the rankers ranks whole batches; fusing their runs is little work."""
        return any(ranker._ranks_whole_batches for ranker in self.rankers_)

    def fit_batch(self, training: Training) -> None:
        self.__dict__.pop("_named", None)
        super().fit_batch(training)

    def _runs(self, batch: QueryBatch, depth: int = 0, *, out_of_fold: bool = False) -> dict[str, Run]:
        """Return each ranker's run, with at least the documents that are fused."""
        depth = max(depth, self.depth)
        runs = runs_of(list(self._named.values()), batch, depth, out_of_fold=out_of_fold)
        return dict(zip(self._named, runs, strict=True))

    @cached_property
    def _named(self) -> dict[str, Ranker]:
        """The fitted rankers by name; cached, because making the names can take longer than ranking."""
        return {str(ranker): ranker for ranker in self.rankers_}


def in_blocks(runs: Mapping[str, Run], fuse: Callable[[dict[str, Run]], Run]) -> Run:
    """Return ``fuse(runs)``, computed for some queries at a time, which takes less memory and time."""
    ids = next(iter(runs.values())).query_ids
    n = _QUERIES_FUSED_AT_ONCE
    blocks = [ids[start : start + n] for start in range(0, len(ids), n)]
    if len(blocks) < 2:
        return fuse(dict(runs))
    return Run.joined([fuse({name: run.take(block) for name, run in runs.items()}) for block in blocks])
