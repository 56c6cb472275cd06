"""``haybale doctor``."""

from __future__ import annotations

import importlib
from typing import Annotated, Any, NamedTuple

import typer

from haybale.cli.application import MORE, command
from haybale.cli.options import MACHINE, option
from haybale.cli.terminal import console_for_tables, note, visible
from haybale.errors import HaybaleError
from haybale.versions import version_of


class Check(NamedTuple):
    """An optional feature: the module to import, its distribution on PyPI, and the extra that installs it."""

    feature: str
    module: str
    distribution: str
    extra: str


CHECKS = (
    Check("report charts", "matplotlib", "matplotlib", "reports"),
    Check("report pages", "jinja2", "jinja2", "reports"),
    Check("near-duplicates in reviews", "datasketch", "datasketch", "review"),
    Check("index backend cuvs", "cuvs", "cuvs-cu13", "gpu"),
    Check("index backend faiss-gpu", "faiss", "faiss-gpu-cuvs", "gpu"),
    Check("encoder sentence-transformers", "sentence_transformers", "sentence-transformers", "neural"),
    Check("encoder torch", "torch", "torch", "neural"),
    Check("encoder backend openvino", "openvino", "openvino", "openvino"),
    Check("fine-tuning", "accelerate", "accelerate", "train"),
    Check("fine-tuning: data sets", "datasets", "datasets", "train"),
    Check("fine-tuning: LoRA adapters", "peft", "peft", "train"),
    Check("CuPy (arrays on a GPU)", "cupy", "cupy-cuda13x", "gpu"),
    Check("cuML (SVR on a GPU)", "cuml", "cuml-cu13", "gpu"),
    Check("cuDF (frames on a GPU)", "cudf", "cudf-cu13", "gpu"),
    Check("Dask cluster", "distributed", "distributed", "dask"),
    Check("ir_datasets collections", "ir_datasets", "ir_datasets", "ir_datasets"),
    Check("PyTerrier transformers", "pyterrier", "pyterrier", "pyterrier"),
)


def examine(check: Check) -> tuple[bool, str, str]:
    """Return ``(usable, version, remark)``; the remark of a missing package is the command that installs it."""
    number = version_of(check.distribution) or "?"
    try:
        module = importlib.import_module(check.module)
        return True, number, _remark(check, module)
    except ModuleNotFoundError:
        return False, "", f'pip install "haybale[{check.extra}]"'
    except HaybaleError as error:
        return False, number, str(error)
    except Exception as error:  # a broken installation may raise any error, and CuPy raises its own without a driver
        return False, number, f"{type(error).__name__}: {error}"


def _remark(check: Check, module: Any) -> str:
    """Return what is usable of an imported module; raise an error if nothing is."""
    from haybale.retrieval.backends import BACKENDS

    backend = check.feature.removeprefix("index backend ")
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
def doctor(
    device: Annotated[
        str | None,
        option(
            "Run each stage on this device, cpu, cuda, cuda:1 or auto, beside the CPU. Default: list the features.",
            MACHINE,
        ),
    ] = None,
) -> None:
    """List which optional features work on this machine, and how to install the others.

    With --device, small searches, a bag of support vectors, scoring, an aggregation and an encoder run on the device
    and on the CPU. A table says where each ran, its seconds and the largest difference of the results. A stage is slow
    if it takes more than 1.5 times as long as on the CPU. The exit status is 1 if a stage fails or a result is wrong.
    """
    if device is not None:
        _check_device(device)
        return
    from rich.markup import escape
    from rich.table import Table

    from haybale.retrieval.backends import auto

    table = Table("", "feature", "version", "remark", title="haybale doctor", title_justify="left")
    for check in CHECKS:
        usable, number, remark = examine(check)
        table.add_row("[green]✓[/]" if usable else "[red]✗[/]", check.feature, number, escape(visible(remark)))
    console_for_tables().print(table)
    chosen, backend = auto()
    print(f"The device auto is {chosen}, the index backend auto is {backend}.")


def _check_device(name: str) -> None:
    """Print what each stage does on a device, beside the CPU."""
    from rich.markup import escape
    from rich.table import Table

    from haybale.device import find_device
    from haybale.evaluation.device_stages import BAD, COLOURS, SKIPPED, check_stages

    device = find_device(name)
    columns = ("stage", "where", "first, s", "again, s", "CPU, s", "largest difference", "verdict")
    table = Table(*columns, title=f"haybale doctor: {device} beside the CPU", title_justify="left")
    done = []
    for stage in check_stages(device):
        note(f"{stage.name}: {stage.verdict}")
        done.append(stage)
        seconds = ["" if value is None else f"{value:.3g}" for value in (stage.first, stage.again, stage.cpu)]
        difference = "" if stage.difference is None else f"{stage.difference:.0e}"
        verdict = f"[{COLOURS[stage.verdict]}]{stage.verdict}[/]"
        table.add_row(stage.name, stage.where, *seconds, difference, verdict)
    console = console_for_tables()
    console.print(table)
    for stage in done:
        if stage.remark:
            console.print(escape(visible(f"{stage.name}, {stage.verdict}: {stage.remark}")), soft_wrap=True)
    n_bad, n_run = (sum(stage.verdict in BAD for stage in done), sum(stage.verdict != SKIPPED for stage in done))
    console.print(f"{n_run - n_bad} of {n_run} stages give the results of the CPU on {device}.")
    if n_bad:
        raise typer.Exit(1)
