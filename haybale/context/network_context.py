"""Context rankers that learn a network of torch, and one more for each fold of the training queries."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.collections.collection import Ints
from haybale.context.context_ranker import N_FOLDS, ContextRanker
from haybale.context.linear_context import drawn, judged_documents
from haybale.engine import Engine
from haybale.errors import FileFormatError
from haybale.extras import import_optional
from haybale.manifest import read_tensors, write_tensors
from haybale.rankers.out_of_fold import OutOfFold
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.training import Training
from haybale.timing import timed

_NETWORKS = "networks.safetensors"


class NetworkContext(OutOfFold, ContextRanker):
    """The base of these rankers: each has ``_network``, ``_trained`` and ``_width``, and says what it learns from."""

    kind: str
    n_queries: int
    random_state: int | None
    networks_: dict[int, Any]  # by the fold that each did not see, -1 for none
    loss_: float
    _learned_from: Any  # None where all have learned

    def _judged(self, training: Training) -> tuple[QueryBatch, Ints, Ints, NDArray[np.bool_]]:
        """The training queries that are learned from, dealt into folds; and ``(query row, document, is relevant)``."""
        rows = drawn(training, self.n_queries, self.random_state)
        batch = training.batch.take(rows) if len(rows) < len(training) else training.batch
        self.query_ids_, self.fold_of_ = batch.ids, batch.folds(N_FOLDS, self.random_state)
        return batch, *judged_documents(self, batch, [training.relevant[row] for row in rows])

    def _begin(self, batch: QueryBatch, learned_from: Any) -> None:
        """Learn from all training queries; what they taught is kept for the folds."""
        self.networks_, self._learned_from = {}, learned_from
        with batch.timed(f"learn context ({self})"):
            self.networks_[-1], self.loss_ = self._trained(-1)

    def network(self, fold: int = -1) -> Any:
        """The network of torch that learned from all training queries; or, learned when somebody asks for it, or saves,
        the one that learned from those outside a fold."""
        if fold not in self.networks_:
            with timed(f"learn context of folds ({self})"):
                self.networks_[fold], _ = self._trained(fold)
            if len(self.networks_) == N_FOLDS + 1:
                self._learned_from = None
        return self.networks_[fold]

    @abstractmethod
    def _trained(self, fold: int) -> tuple[Any, float]:
        """A network that learned from the queries outside a fold, and its loss in the last epoch."""

    @abstractmethod
    def _network(self, dim: int) -> Any:
        """A network before learning, over vectors of that width."""

    @abstractmethod
    def _width(self) -> int:
        """Of the vectors that its networks are over."""

    @property
    def _itself(self) -> bool:
        return self.kind != "mim"

    def save_state(self, folder: Path) -> dict[str, Any]:
        self.write_folds(folder)
        write_tensors(
            folder / _NETWORKS,
            {
                f"{number}.{name}": np.ascontiguousarray(tensor.detach().cpu().numpy())
                for number in range(-1, N_FOLDS)
                for name, tensor in self.network(number).state_dict().items()
            },
        )
        return {"dim": self._width(), "loss": self.loss_, "mask": self.mask_}

    def load_state(self, folder: Path, facts: dict[str, Any], engine: Engine) -> None:
        import_optional("torch", "neural")
        import torch

        self.read_folds(folder)
        self.loss_, self.mask_, self._learned_from = facts["loss"], facts["mask"], None
        tensors, self.networks_ = read_tensors(folder / _NETWORKS), {}
        for number in range(-1, N_FOLDS):
            network, begin = self._network(facts["dim"]), f"{number}."
            mine = {name.removeprefix(begin): value for name, value in tensors.items() if name.startswith(begin)}
            try:
                network.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in mine.items()})
            except RuntimeError as error:
                raise FileFormatError(folder / _NETWORKS, None, str(error).splitlines()[0]) from None
            self.networks_[number] = network.eval()
