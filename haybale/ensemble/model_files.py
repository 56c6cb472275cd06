"""Saved models: numbers in safetensors, ids in Parquet, and the rest in JSON. Loading a model executes no code from it.

    manifest.json          format, version, kind, parameters, γ, a report, and the SHA-256 of every other file
    tensors.safetensors    support vectors, coefficients, scalings
    queries.parquet        ids of the support queries (ensembles)
    passages.parquet       ids of the support passages (ensembles)

Loading needs no solver, and the files do not depend on the device on which the model was trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import to_numpy
from haybale.ensemble.kernel import Points
from haybale.ensemble.spaces import Scaling, Spaces
from haybale.ensemble.support import Support
from haybale.errors import FileFormatError
from haybale.folders import whole_folder
from haybale.manifest import (
    MANIFEST,
    check_files,
    read_manifest,
    read_table,
    read_tensors,
    write_manifest,
    write_table,
    write_tensors,
)
from haybale.parameters import check_parameters

FORMAT, VERSION = "haybale model", 2
_TENSORS = "tensors.safetensors"
_SUPPORT_COLUMNS = ("query", "passage", "coef", "label", "offsets", "intercept")
_OPTIONAL_COLUMNS = ("feature_weights",)
_REPORT_KEY = "facts"  # the key of the report in the manifest
_ID_SCHEMA = pa.schema([pa.field("id", pa.large_string())])

Tensors = dict[str, NDArray[Any]]
M = TypeVar("M")


@dataclass(frozen=True)
class Saved:
    """The content of a saved model, except its parameters."""

    support: Support
    spaces: Spaces
    report: dict[str, Any]
    ids: dict[str, list[str]]
    scalings: dict[str, Scaling]
    tensors: Tensors  # all tensors in the file


def save_model(
    folder: Path,
    kind: str,
    parameters: Mapping[str, Any],
    support: Support,
    spaces: Spaces,
    *,
    report: dict[str, Any],
    ids: Mapping[str, Sequence[str]] | None = None,
    scalings: Mapping[str, Scaling] | None = None,
    tensors: Tensors | None = None,
) -> None:
    """Write a trained model to a new or empty folder; the folder is moved into place when it is complete.

    A solver that is a function is not saved.
    """
    written = _points_tensors("queries", support.queries) | _points_tensors("passages", support.passages)
    written |= {
        name: value for name in (*_SUPPORT_COLUMNS, *_OPTIONAL_COLUMNS) if (value := getattr(support, name)) is not None
    }
    written |= tensors or {}
    scalings = dict(scalings or {})
    scalings |= {f"space{number}.query": scaling for number, scaling in enumerate(spaces.query)}
    scalings |= {f"space{number}.passage": scaling for number, scaling in enumerate(spaces.passage)}
    for name, scaling in scalings.items():
        written[f"{name}.factor"] = np.asarray(scaling.factor)
        if scaling.shift is None:
            written[f"{name}.columns"] = np.array(scaling.columns)
        else:
            written[f"{name}.shift"] = scaling.shift
    plain = {name: _plain(value) for name, value in parameters.items() if name != "device" and not callable(value)}
    gamma = [list(pair) for pair in spaces.gamma]
    head = {"format": FORMAT, "version": VERSION, "kind": kind, "parameters": plain, "gamma": gamma}
    with whole_folder(folder) as aside:
        for name, values in (ids or {}).items():
            write_table(aside / f"{name}.parquet", pa.table([values], schema=_ID_SCHEMA))
        write_tensors(aside / _TENSORS, written)
        write_manifest(aside, head | {_REPORT_KEY: report})


def load_model(folder: Path, kind: str, make: Callable[..., M], ids: Sequence[str] = ()) -> tuple[M, Saved]:
    """Return an unfitted model, created by ``make(**parameters)``, and the other saved content.

    ``ids`` names the Parquet files of ids. Raises :class:`FileFormatError` for missing or changed files.
    """
    manifest = read_manifest(folder, "model", {"format": FORMAT, "version": VERSION, "kind": kind})
    expected: dict[str, Any] = {"parameters": dict, "gamma": list, _REPORT_KEY: dict}
    for name, kinds in expected.items():
        if not isinstance(manifest.get(name), kinds):
            message = f"{name!r} is missing or has the wrong type; fit and save the model again"
            raise FileFormatError(folder / MANIFEST, None, message)
    check_files(folder, manifest, {_TENSORS, *(f"{name}.parquet" for name in ids)})
    try:
        model: Any = make(**{name: _unplain(value) for name, value in manifest["parameters"].items()})
        check_parameters(kind, model.get_params(), model._parameter_constraints)
    except (TypeError, ValueError) as error:
        message = f"cannot use the saved parameters: {error}; fit and save the model again"
        raise FileFormatError(folder / MANIFEST, None, message) from None
    tensors = read_tensors(folder / _TENSORS)
    try:
        columns: dict[str, Any] = {name: tensors[name] for name in _SUPPORT_COLUMNS}
        columns |= {name: tensors.get(name) for name in _OPTIONAL_COLUMNS}
        points = _points(tensors, "queries"), _points(tensors, "passages")
        support = Support(*points, **columns).checked()
        names = {name.removesuffix(".factor") for name in tensors if name.endswith(".factor")}
        scalings = {name: _scaling(tensors, name) for name in names}
        gamma = tuple((float(q), float(p)) for q, p in manifest["gamma"])
        halves = [tuple(scalings[f"space{i}.{half}"] for i in range(len(gamma))) for half in ("query", "passage")]
        spaces = Spaces(halves[0], halves[1], gamma)
    except (KeyError, TypeError, ValueError) as error:
        message = str(error)
        if isinstance(error, KeyError):
            message = f"tensor {error} is missing; fit and save the model again"
        raise FileFormatError(folder / _TENSORS, None, message) from None
    saved_ids = {name: read_table(folder / f"{name}.parquet", _ID_SCHEMA).column("id").to_pylist() for name in ids}
    for name, column in saved_ids.items():
        if len(column) != (expected_ids := len(getattr(support, name))):
            message = f"expected {expected_ids} ids, one for each support vector, found {len(column)}"
            raise FileFormatError(folder / f"{name}.parquet", None, message)
    return model, Saved(support, spaces, manifest[_REPORT_KEY], saved_ids, scalings, tensors)


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold; a tuple becomes an object, to distinguish it from a list."""
    if isinstance(value, tuple):
        return {"tuple": _plain(list(value))}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _unplain(value: Any) -> Any:
    """Return the value from which :func:`_plain` made ``value``."""
    if isinstance(value, dict):
        return tuple(_unplain(value["tuple"]))
    return [_unplain(item) for item in value] if isinstance(value, list) else value


def _points_tensors(name: str, points: Points) -> Tensors:
    tensors: Tensors = {} if points.dense is None else {f"{name}.dense": to_numpy(points.dense)}
    if points.sparse is not None:
        wide = to_numpy(points.sparse)
        tensors |= {f"{name}.sparse.{part}": np.asarray(getattr(wide, part)) for part in ("data", "indices", "indptr")}
        tensors[f"{name}.sparse.shape"] = np.array(wide.shape, dtype=np.int64)
    return tensors


def _points(tensors: Tensors, name: str) -> Points:
    wide = None
    if f"{name}.sparse.data" in tensors:
        data, indices, indptr, shape = (tensors[f"{name}.sparse.{p}"] for p in ("data", "indices", "indptr", "shape"))
        wide = sparse.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
        wide.check_format(full_check=True)
    return Points(tensors.get(f"{name}.dense") if wide is not None else tensors[f"{name}.dense"], wide)


def _scaling(tensors: Tensors, name: str) -> Scaling:
    shift = tensors.get(f"{name}.shift")
    columns = int(tensors[f"{name}.columns"].item()) if shift is None else None
    return Scaling(shift, tensors[f"{name}.factor"], columns)
