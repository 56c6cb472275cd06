"""The networks of a ranker: one trained on all training queries, and one for each fold, trained on the other folds."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from haybale.cached import cached_property
from haybale.collections.collection import Ints
from haybale.context.candidates import N_FOLDS, JudgedDocuments
from haybale.context.masks import MASKS
from haybale.engine.workers import Address, Sendable, Workers
from haybale.errors import FileFormatError, StoreError
from haybale.kept_results import Arrays
from haybale.manifest import read_tensors, write_tensors
from haybale.parameters import COUNT, POSITIVE, RANDOM_STATE, TEXT_OR_NONE, Constraints, Interval, one_of
from haybale.rankers import Ranker
from haybale.ranking.out_of_fold import learning
from haybale.search.query_batch import batch_at, sendable_batch
from haybale.timing import timed

if TYPE_CHECKING:
    from haybale.context.networks.network_training import Scored

KINDS = ("lim", "mim", "mix-im")
RANGES: dict[str, Constraints] = {  # constraints of the parameters that all rankers with networks have
    "ranker": [Ranker],
    "mask": MASKS,
    "kind": one_of(KINDS),
    **dict.fromkeys(("n_documents", "n_queries", "heads", "epochs", "batch_size", "n_negatives"), COUNT),
    "dropout": [Interval(Real, 0, 1, closed="left")],
    "learning_rate": POSITIVE,
    "weight_decay": [Interval(Real, 0, 10**6, closed="both")],
    "device": TEXT_OR_NONE,
    "random_state": RANDOM_STATE,
}
_FILE, _FOLDS, _LOSS = "networks.safetensors", range(-1, N_FOLDS), "loss"


Batches: TypeAlias = "Callable[[Any, int, np.random.Generator], Iterable[Scored]]"


class NetworkRanker(Protocol):
    """What :class:`NetworkFolds` asks of a ranker with networks."""

    kind: str
    random_state: int | None
    learning_rate: float
    weight_decay: float
    epochs: int
    mask_: Any
    fold_of_: Ints

    def new_network(self, dim: int) -> Any:
        """Return an untrained network for vectors of the given width."""
        ...

    def training_batches(self, judged: JudgedDocuments) -> Batches:
        """Return a function of a network, a fold and a generator.

        It iterates over the scored batches of one epoch, without the queries of the fold.
        """
        ...

    def to_dict(self) -> dict[str, Any]: ...

    def clone(self) -> Any: ...

    @property
    def outside_state(self) -> dict[str, Any]: ...


class NetworkFolds(dict[int, Any]):
    """Networks by fold: the network of a fold was trained without its queries, network -1 on all queries.

    Where tasks run in other processes, or their results are kept (:func:`~haybale.kept_results.resumable`), all
    networks are trained at once, each by a task. Otherwise the network of a fold is trained when it is first used.

    Parameters
    ----------
    dim : int
        The width of the vectors.
    ranker : NetworkRanker
        The ranker whose parameters control the training.
    judged : JudgedDocuments, optional
        What the networks learn from. None if all networks are trained.
    """

    def __init__(self, dim: int, ranker: NetworkRanker, judged: JudgedDocuments | None = None) -> None:
        self.dim, self.ranker, self.batches = dim, ranker, None
        if judged is None:
            return
        workers = Workers(judged.batch.engine)
        if workers.divide:
            with timed(f"learn context of folds ({ranker})"):
                self._train_all(judged, workers)
        else:
            self.batches = ranker.training_batches(judged)
            with timed(f"learn context ({ranker})"):
                self[-1], self.loss = trained_network(ranker, dim, self.batches, -1)

    def __missing__(self, fold: int) -> Any:
        with learning:  # one thread trains, while the others wait
            if fold not in self:
                with timed(f"learn context of folds ({self.ranker})"):
                    assert self.batches is not None
                    self[fold], _ = trained_network(self.ranker, self.dim, self.batches, fold)
            if len(self) == len(_FOLDS):
                self.batches = None  # free the training examples
        return self[fold]

    def _train_all(self, judged: JudgedDocuments, workers: Workers) -> None:
        """Train the network of each fold in a task."""
        ranker, batch = self.ranker, judged.batch
        vectors, spec, outside = np.asarray(batch.vectors), ranker.to_dict(), ranker.outside_state

        def keys() -> Iterator[tuple[Any, ...]]:
            for fold in _FOLDS:
                yield spec, outside, ranker.mask_, ranker.fold_of_, batch.texts, batch.own, vectors, *judged[1:], fold

        tasks = [(fold,) for fold in _FOLDS]
        results = workers.run(train_network, (_learner(ranker, judged), self.dim), tasks, keys, "learning context")
        for fold, arrays in zip(_FOLDS, results, strict=True):
            self[fold] = self._loaded({name: value for name, value in arrays.items() if name != _LOSS})
        self.loss = float(results[0][_LOSS][0])

    def _loaded(self, state: Arrays) -> Any:
        """Return a trained network; RuntimeError if it has other parameters."""
        import torch

        network = self.ranker.new_network(self.dim)
        network.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in state.items()})
        return network.eval()

    def report(self, relations: tuple[str, ...]) -> dict[str, Any]:
        """Return the loss, λ and the weight of each relation in the last layer."""
        network = self[-1]
        weights = network.layers[-1].weight.detach().cpu().tolist()
        share = {} if self.ranker.kind == "mim" else {"λ": float(network.share.detach())}
        return {"loss": self.loss} | share | {f"w of {name}": w for name, w in zip(relations, weights, strict=False)}

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the networks of all folds, training missing ones; return the other values for :meth:`load`."""
        tensors = {
            f"{fold}.{name}": np.ascontiguousarray(tensor.detach().cpu().numpy())
            for fold in _FOLDS
            for name, tensor in self[fold].state_dict().items()
        }
        write_tensors(folder / _FILE, tensors)
        return {"dim": self.dim, "loss": self.loss}

    @classmethod
    def load(cls, folder: Path, saved: dict[str, Any], ranker: NetworkRanker) -> NetworkFolds:
        """Read what :meth:`save` wrote."""
        networks, tensors = cls(saved["dim"], ranker), read_tensors(folder / _FILE)
        networks.loss = saved["loss"]
        for fold in _FOLDS:
            begin = f"{fold}."
            state = {name.removeprefix(begin): value for name, value in tensors.items() if name.startswith(begin)}
            try:
                networks[fold] = networks._loaded(state)
            except RuntimeError as error:
                raise FileFormatError(folder / _FILE, None, str(error).splitlines()[0]) from None
        return networks


def trained_network(ranker: NetworkRanker, dim: int, batches: Batches, fold: int) -> tuple[Any, float]:
    """Return a network trained on the queries outside a fold, and its mean loss in the last epoch."""
    import torch

    from haybale.context.networks.network_training import train

    rng = np.random.default_rng(ranker.random_state)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(int(np.random.default_rng(ranker.random_state).integers(2**31)))
        network = ranker.new_network(dim)
        pairwise = getattr(ranker, "setting", "") == "paper"
        rates = ranker.learning_rate, ranker.weight_decay
        return network, train(network, lambda: batches(network, fold, rng), ranker.epochs, *rates, pairwise)


@dataclass(eq=False)
class _Learner:
    """A ranker that is fitted, and what its networks learn from."""

    ranker: NetworkRanker
    judged: JudgedDocuments

    @cached_property
    def batches(self) -> Batches:
        """The training examples, made once for all folds."""
        return self.ranker.training_batches(self.judged)


def _learner(ranker: NetworkRanker, judged: JudgedDocuments) -> Sendable:
    """Return a :class:`_Learner` as an argument of tasks: an unfitted ranker and the judged documents are sent."""
    learner: Any = ranker.clone()
    learner.mask_, learner.fold_of_ = ranker.mask_, ranker.fold_of_
    batch = sendable_batch(judged.batch)
    return Sendable(
        _Learner(ranker, judged), _learner_at, lambda: (learner, ranker.outside_state, batch.values(), judged[1:])
    )


def _learner_at(
    address: Address, learner: NetworkRanker, outside: dict[str, Any], batch: tuple[Any, ...], judged: tuple[Any, ...]
) -> _Learner:
    """Return the learner on the engine at an address."""
    if any(outside.get(name) != value for name, value in learner.outside_state.items()):
        raise StoreError(
            f"{learner}: on {socket.gethostname()}, expected the model that it is fitted with, found another at its "
            "path; use shared storage, or fit the ranker again"
        )
    return _Learner(learner, JudgedDocuments(batch_at(address, *batch), *judged))


def train_network(learner: _Learner, dim: int, fold: int) -> Arrays:
    """Train the network of a fold; return its parameters and its loss."""
    with learning:  # torch has one random generator for all threads of a process
        network, loss = trained_network(learner.ranker, dim, learner.batches, fold)
    state = {name: value.detach().cpu().contiguous().numpy() for name, value in network.state_dict().items()}
    return state | {_LOSS: np.array([loss])}
