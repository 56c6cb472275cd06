"""The networks of a ranker: one trained on all training queries, and one for each fold, trained on the other folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from haybale.context.candidates import N_FOLDS
from haybale.context.masks import MASKS
from haybale.errors import FileFormatError
from haybale.manifest import read_tensors, write_tensors
from haybale.parameters import COUNT, POSITIVE, RANDOM_STATE, TEXT_OR_NONE, Constraints, Interval, one_of
from haybale.rankers import Ranker
from haybale.rankers.out_of_fold import learning
from haybale.timing import timed

if TYPE_CHECKING:
    from haybale.context.networks.learning import Scored

KINDS = ("lim", "mim", "mix-im")
RANGES: dict[str, Constraints] = {  # of the parameters that all rankers with networks have
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
_FILE, _FOLDS = "networks.safetensors", range(-1, N_FOLDS)


class NetworkFolds(dict[int, Any]):
    """Networks by fold: the network of a fold was trained without its queries, network -1 on all queries.

    The network of a fold is trained when it is first used.

    Parameters
    ----------
    new_network : callable
        ``new_network()`` returns an untrained network.
    ranker : Ranker
        The ranker whose parameters control the training.
    batches : callable, optional
        ``batches(network, fold, rng)`` iterates over the scored batches of one epoch, without the queries of the fold.
        None if all networks are trained.
    """

    def __init__(
        self,
        new_network: Callable[[], Any],
        ranker: Any,
        batches: Callable[[Any, int, np.random.Generator], Iterable[Scored]] | None = None,
    ) -> None:
        self.new_network, self.ranker, self.batches = new_network, ranker, batches
        if batches is not None:
            with timed(f"learn context ({ranker})"):
                self[-1], self.loss = self._train(-1)

    def __missing__(self, fold: int) -> Any:
        with learning:  # by one thread, while others wait
            if fold not in self:
                with timed(f"learn context of folds ({self.ranker})"):
                    self[fold], _ = self._train(fold)
            if len(self) == len(_FOLDS):
                self.batches = None  # frees the training examples
        return self[fold]

    def _train(self, fold: int) -> tuple[Any, float]:
        """Return a network trained on the queries outside a fold, and its mean loss in the last epoch."""
        import torch

        from haybale.context.networks.learning import train

        ranker, batches, rng = self.ranker, self.batches, np.random.default_rng(self.ranker.random_state)
        assert batches is not None
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(int(np.random.default_rng(ranker.random_state).integers(2**31)))
            network = self.new_network()
            pairwise = getattr(ranker, "setting", "") == "paper"
            rates = ranker.learning_rate, ranker.weight_decay
            return network, train(network, lambda: batches(network, fold, rng), ranker.epochs, *rates, pairwise)

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
        return {"loss": self.loss}

    @classmethod
    def load(cls, folder: Path, saved: dict[str, Any], new_network: Callable[[], Any], ranker: Any) -> NetworkFolds:
        """Read what :meth:`save` wrote."""
        import torch

        found, tensors = cls(new_network, ranker), read_tensors(folder / _FILE)
        found.loss = saved["loss"]
        for fold in _FOLDS:
            found[fold], begin = new_network(), f"{fold}."
            state = {name.removeprefix(begin): value for name, value in tensors.items() if name.startswith(begin)}
            try:
                found[fold].load_state_dict({name: torch.from_numpy(value.copy()) for name, value in state.items()})
            except RuntimeError as error:
                raise FileFormatError(folder / _FILE, None, str(error).splitlines()[0]) from None
            found[fold].eval()
        return found
