"""``haybale doctor``: what is usable here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from haybale.cli.output import console_for_tables
from haybale.retrieval.exact import BACKENDS, auto


def _cuda_of_torch(module: Any) -> str:
    return "with CUDA" if module.cuda.is_available() else "CPU only"


def _devices_of_cupy(module: Any) -> str:
    try:
        count = module.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy raises its own error for "no driver", which only CuPy can name
        raise RuntimeError(f"no CUDA device answers ({type(error).__name__})") from error
    devices = []
    for number in range(count):
        name = module.cuda.runtime.getDeviceProperties(number)["name"].decode()
        free, total = module.cuda.Device(number).mem_info
        devices.append(f"cuda:{number} {name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    return "; ".join(devices) or "no CUDA device"


def _can_search(backend: str) -> Callable[[Any], str]:
    def probe(module: Any) -> str:
        error = BACKENDS[backend].missing()
        if error is not None:
            raise RuntimeError(str(error)) from error
        return ""

    return probe


class Check(NamedTuple):
    """One thing that may be usable: the module to import, its distribution, the extra that brings it."""

    what: str
    module: str
    distribution: str
    extra: str | None = None  # None: part of the base install
    probe: Callable[[Any], str] = lambda module: ""


CHECKS = (
    Check("index backend faiss", "faiss", "faiss-cpu"),
    Check("index backend numpy", "numpy", "numpy"),
    Check("index backend cuvs", "cuvs", "cuvs-cu13", "gpu", _can_search("cuvs")),
    Check("index backend faiss-gpu", "faiss", "faiss-gpu-cuvs", None, _can_search("faiss-gpu")),
    Check("BM25", "bm25s", "bm25s"),
    Check("SVR solver sklearn", "sklearn", "scikit-learn"),
    Check("store of embeddings", "zarr", "zarr"),
    Check("measures", "ir_measures", "ir_measures"),
    Check("figures", "matplotlib", "matplotlib"),
    Check("reports", "jinja2", "Jinja2"),
    Check("encoder sentence-transformers", "sentence_transformers", "sentence-transformers", "neural"),
    Check("encoder torch", "torch", "torch", "neural", _cuda_of_torch),
    Check("arrays in GPU memory", "cupy", "cupy-cuda13x", "gpu", _devices_of_cupy),
    Check("cuML", "cuml", "cuml-cu13", "gpu"),
    Check("cuDF", "cudf", "cudf-cu13", "gpu"),
    Check("Dask cluster", "distributed", "distributed", "dask"),
    Check("collections of ir_datasets", "ir_datasets", "ir_datasets", "ir_datasets"),
    Check("transformers for PyTerrier", "pyterrier", "pyterrier", "pyterrier"),
)


def examine(check: Check) -> tuple[bool, str, str]:
    """``(usable, version, remark)``; the remark is the pip line where a package is missing."""
    try:
        module = importlib.import_module(check.module)
    except ModuleNotFoundError:
        return False, "", f'pip install "haybale[{check.extra}]"' if check.extra else "pip install haybale"
    except Exception as error:  # a broken install may raise anything
        return False, _version(check.distribution), f"does not import: {type(error).__name__}: {error}"
    try:
        return True, _version(check.distribution), check.probe(module)
    except RuntimeError as error:
        return False, _version(check.distribution), str(error)


def run_doctor() -> None:
    """Print the table."""
    table = Table("", "what", "version", "remark", title="haybale doctor", title_justify="left")
    for check in CHECKS:
        usable, number, remark = examine(check)
        table.add_row("[green]✓[/]" if usable else "[red]✗[/]", check.what, number, escape(remark))
    console_for_tables().print(table)
    device, single, half = auto()
    print(f'"auto" here: device {device}; index backend {single} for float32 passages, {half} for float16')


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "?"
