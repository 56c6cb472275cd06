"""Batches by token count: every text once, and none that could have taken one more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.embeddings.token_batches import check_texts, in_batches, token_batches
from haybale.errors import DeviceError, InputError


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 120))
def test_batches(lengths: list[int], budget: int) -> None:
    batches = token_batches(lengths, budget)
    order = [i for batch in batches for i in batch.tolist()]
    assert order == sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    cost = [sum(lengths[i] for i in batch) for batch in batches]
    assert all(len(batch) == 1 or each <= budget for batch, each in zip(batches, cost, strict=True))
    for each, after in zip(cost, batches[1:], strict=False):  # none could have taken one more
        assert each + lengths[after[0]] > budget


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.integers(1, 20))
def test_batches_are_halved_where_memory_runs_out(sizes: list[int], room: int) -> None:
    def work(batch: np.ndarray) -> int:
        if len(batch) > room:
            raise MemoryError
        return int(batch.sum())

    numbers = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    done = list(in_batches(numbers, work))
    assert np.concatenate([batch for batch, _ in done]).tolist() == list(range(sum(sizes)))
    assert all(found == batch.sum() for batch, found in done)
    with pytest.raises(DeviceError, match="out of memory at a tile of 1 texts"):
        list(in_batches(numbers, lambda batch: (_ for _ in ()).throw(MemoryError)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [(["a", ""], "text 1 of 2 is empty"), (["a", " \n"], "text 1 of 2"), ("one", "single string"), ([3], "int")],
)
def test_bad_texts_are_refused(bad: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_texts(bad)
