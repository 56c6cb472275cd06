"""``haybale doctor``: list what is usable on this machine."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from haybale.cli.application import MORE, command
from haybale.cli.terminal import console_for_tables, visible
from haybale.errors import HaybaleError


class Check(NamedTuple):
    """Something that may be usable: the module to import, its distribution, and the extra that brings it."""

    what: str
    module: str
    distribution: str
    extra: str


CHECKS = (
    Check("charts of reports", "matplotlib", "matplotlib", "reports"),
    Check("pages of reports", "jinja2", "jinja2", "reports"),
    Check("index backend faiss", "faiss", "faiss-cpu", "faiss"),
    Check("index backend cuvs", "cuvs", "cuvs-cu13", "gpu"),
    Check("index backend faiss-gpu", "faiss", "faiss-gpu-cuvs", "gpu"),
    Check("encoder sentence-transformers", "sentence_transformers", "sentence-transformers", "neural"),
    Check("encoder torch", "torch", "torch", "neural"),
    Check("training of encoders", "accelerate", "accelerate", "train"),
    Check("its data sets", "datasets", "datasets", "train"),
    Check("its adapters (LoRA)", "peft", "peft", "train"),
    Check("arrays in GPU memory", "cupy", "cupy-cuda13x", "gpu"),
    Check("cuML", "cuml", "cuml-cu13", "gpu"),
    Check("cuDF", "cudf", "cudf-cu13", "gpu"),
    Check("Dask cluster", "distributed", "distributed", "dask"),
    Check("collections of ir_datasets", "ir_datasets", "ir_datasets", "ir_datasets"),
    Check("transformers for PyTerrier", "pyterrier", "pyterrier", "pyterrier"),
)


def examine(check: Check) -> tuple[bool, str, str]:
    """Return ``(usable, version, remark)``; the remark of a missing package is its pip line."""
    try:
        number = version(check.distribution)
    except PackageNotFoundError:
        number = "?"
    try:
        module = importlib.import_module(check.module)
        return True, number, _remark(check, module)
    except ModuleNotFoundError:
        return False, "", f'pip install "haybale[{check.extra}]"'
    except HaybaleError as error:
        return False, number, str(error)
    except Exception as error:  # a broken install may raise anything, and CuPy raises its own error without a driver
        return False, number, f"{type(error).__name__}: {error}"


def _remark(check: Check, module: Any) -> str:
    """Return what works of a module; raise an error if nothing does."""
    from haybale.retrieval.backends import BACKENDS

    backend = check.what.removeprefix("index backend ")
    if backend in ("cuvs", "faiss-gpu") and (error := BACKENDS[backend].missing()) is not None:
        raise error
    if check.module == "torch":
        return "with CUDA" if module.cuda.is_available() else "CPU only"
    if check.module != "cupy":
        return ""
    devices = []
    for number in range(module.cuda.runtime.getDeviceCount()):
        name = module.cuda.runtime.getDeviceProperties(number)["name"].decode()
        free, total = module.cuda.Device(number).mem_info
        devices.append(f"cuda:{number} {name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    return "; ".join(devices)


@command(MORE)
def doctor() -> None:
    """List which backends and extras are usable here, and the pip line for those that are not."""
    from rich.markup import escape
    from rich.table import Table

    from haybale.retrieval.backends import auto

    table = Table("", "what", "version", "remark", title="haybale doctor", title_justify="left")
    for check in CHECKS:
        usable, number, remark = examine(check)
        table.add_row("[green]✓[/]" if usable else "[red]✗[/]", check.what, number, escape(visible(remark)))
    console_for_tables().print(table)
    device, backend = auto()
    print(f'"auto" here: device {device}; index backend {backend}')
