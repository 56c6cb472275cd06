"""Merge the small segments of an engine into larger ones, as Lucene does, so that an engine has few of them.

Ten segments of about the same size become one. So a document is written again once for each power of ten that its
segment grows, and an engine of a thousand additions has some tens of segments. Documents keep their numbers, and
replaced and removed documents stay, so rankings and statistics are the same. No document is encoded again.

The folders of merged segments stay until the next merge, since another process may have an engine open that has not
read all of them yet. After that, such an engine says that it must be refreshed.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa

from haybale.collections import Collection
from haybale.engine.indexing_segments import INDEXES
from haybale.engine.segment import Segment, has_finished_index

MAX_OF_ONE_SIZE = 10  # segments whose numbers of passages have equally many digits
MAX_SEGMENTS = 40


def n_to_merge(sizes: Sequence[int]) -> int:
    """Return how many of the last segments should become one, 0 for none, given their numbers of passages.

    >>> n_to_merge([1] * 9), n_to_merge([1] * 10), n_to_merge([5000, 20] + [1] * 10), n_to_merge([5000] + [20] * 10)
    (0, 10, 10, 10)
    """
    digits = [int(math.log10(max(size, 1))) for size in sizes]
    for most in sorted(set(digits)):
        n = next((n for n, number in enumerate(reversed(digits)) if number > most), len(digits))
        if n and (digits[-n:].count(most) >= MAX_OF_ONE_SIZE or n >= MAX_SEGMENTS):
            return n
    return 0


def merged_documents(segments: Sequence[Segment], metadata: pa.Table | None) -> Collection:
    """Return the documents of consecutive segments as one collection.

    ``metadata`` are their rows of the metadata of all segments, of which the columns of these segments are kept.
    """
    wholes = [segment.texts.whole for segment in segments]
    joined = reduce(lambda one, other: one.extended(other, distinct=False), wholes)
    names = {name for whole in wholes if whole.metadata is not None for name in whole.metadata.column_names}
    columns = [] if metadata is None else [name for name in metadata.column_names if name in names]
    none = np.empty(0, dtype=np.int64)
    kept = None if metadata is None or not columns else metadata.select(columns)
    return replace(joined, queries=joined.queries.take(none), splits={}, metadata=kept)


def write_vectors(segments: Sequence[Segment], folder: Path) -> None:
    """Write the vectors of the documents of some segments to the folder of one.

    They are left out if none of the segments has any, unless documents replace each other: an index of these can only
    be made from those of the segments.
    """
    ids = pa.chunked_array([chunk for segment in segments for chunk in segment.texts.whole.doc_ids.chunks])
    repeats = len(ids.unique()) < len(ids)
    for name in INDEXES[2:]:
        if repeats or any(has_finished_index(segment, name) for segment in segments):
            index = segments[0].index(name)
            for segment in segments[1:]:
                index = segment.extend_index(index, name)
            index.save(folder / name)


def remove_merged(folder: Path, kept: set[int]) -> None:
    """Remove the folders of segments, except those with the given numbers. What cannot be removed now stays."""
    for path in folder.iterdir():
        if path.name.isdecimal() and int(path.name) not in kept and path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                shutil.rmtree(path)
