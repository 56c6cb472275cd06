"""The order of equal scores: passages by the id of their document, then by their position in it.

The order of ids does not depend on the rows of an index, so neither do rankings: documents may come in any order, at
once or one by one. Sorting the ids of a million documents takes half a second, so it waits for the first tie.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from haybale.arrow import numbers_of
from haybale.cached import cached_property
from haybale.collections.collection import ragged_take
from haybale.collections.ids import Ints, Strings
from haybale.device import Device, to_device

Places = NDArray[np.uint32]


class IdOrder:
    """The positions of passages in the order of ids.

    Parameters
    ----------
    doc_ids : (n_documents,) strings
    doc_offsets : (n_documents + 1,) int64
        Passages ``doc_offsets[i]:doc_offsets[i + 1]`` belong to document i.
    whole : (IdOrder, (n,) int64), optional
        The order of more passages, and the numbers of these passages among them, which saves sorting ids again.
    """

    def __init__(self, doc_ids: Strings, doc_offsets: Ints, whole: tuple[IdOrder, Ints] | None = None) -> None:
        self.doc_ids, self.doc_offsets, self.whole = doc_ids, doc_offsets, whole
        self._on_devices: dict[Device, tuple[Any, Any]] = {}

    @cached_property
    def passages(self) -> Places | None:
        """The passages in the order of ids, (n,); None if this is their order already.

        >>> import pyarrow as pa
        >>> order = IdOrder(pa.chunked_array([["b", "a"]]), np.array([0, 1, 3]))
        >>> order.passages, order.places
        (array([1, 2, 0], dtype=uint32), array([2, 0, 1], dtype=uint32))
        """
        if self.whole is not None:
            positions, rows = self.whole[0].places, self.whole[1]
            return None if positions is None else _unless_sorted(np.argsort(positions[rows]))
        by_id = _unless_sorted(numbers_of(pc.sort_indices(self.doc_ids)))  # by UTF-8 bytes: the order of code points
        return None if by_id is None else ragged_take(self.doc_offsets, by_id.astype(np.int64))[0].astype(np.uint32)

    @cached_property
    def places(self) -> Places | None:
        """The position of each passage in the order of ids, (n,); None if it is the number of the passage."""
        if self.passages is None:
            return None
        positions = np.empty(len(self.passages), dtype=np.uint32)
        positions[self.passages] = np.arange(len(positions), dtype=np.uint32)
        return positions

    @property
    def is_known(self) -> bool:
        """Whether the ids have been sorted already."""
        return "places" in vars(self)

    def on(self, device: Device) -> tuple[Any, Any] | None:
        """Return :attr:`places` and :attr:`passages` on a device, or None if passages are in the order of ids."""
        if self.places is None:
            return None
        if device not in self._on_devices:
            self._on_devices[device] = to_device(self.places, device), to_device(self.passages, device)
        return self._on_devices[device]


def _unless_sorted(order: NDArray[Any]) -> Places | None:
    return None if bool((order[1:] > order[:-1]).all()) else order.astype(np.uint32)
