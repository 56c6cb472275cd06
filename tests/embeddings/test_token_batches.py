"""Batches by token count contain every text once, and are as large as the budget allows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.embeddings.token_batches import check_texts, encode_batches, token_batches
from haybale.errors import DeviceError, InputError


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 120))
def test_batches(lengths: list[int], budget: int) -> None:
    batches = token_batches(lengths, budget)
    order = [i for batch in batches for i in batch.tolist()]
    assert order == sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    cost = [sum(lengths[i] for i in batch) for batch in batches]
    assert all(len(batch) == 1 or each <= budget for batch, each in zip(batches, cost, strict=True))
    for each, after in zip(cost, batches[1:], strict=False):  # the next text would not have fitted
        assert each + lengths[after[0]] > budget


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.integers(1, 20))
def test_batches_are_halved_when_memory_runs_out(sizes: list[int], room: int) -> None:
    def work(batch: np.ndarray) -> np.ndarray:
        if len(batch) > room:
            raise MemoryError
        return np.stack([batch, -batch], axis=1)

    numbers = np.arange(sum(sizes))
    batches = np.split(np.random.default_rng(0).permutation(numbers), np.cumsum(sizes)[:-1])
    np.testing.assert_array_equal(encode_batches(batches, work, 2), np.stack([numbers, -numbers], axis=1))
    room = 0
    with pytest.raises(DeviceError, match="1 texts"):
        encode_batches(batches, work, 2)


@pytest.mark.parametrize(
    ("bad", "named"),
    [(["a", ""], "text 1 of 2"), (["a", " \n"], "text 1 of 2"), ("one", "'one'"), ([3], "text 0 .*int")],
)
def test_bad_texts_are_refused(bad: list[str], named: str) -> None:
    with pytest.raises(InputError, match=named):
        check_texts(bad)
