"""Run the network of a sentence-transformers model by OpenVINO.

The network is exported when the model is loaded. Tokenizer, pooling and prompts remain those of sentence-transformers,
whose own backend needs Optimum, which cannot be installed beside every version of Transformers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from haybale.errors import InputError
from haybale.extras import import_optional, loading_model, quiet_transformers

BACKENDS = ("torch", "openvino")
_EXPORT_TEXTS = ["a text", "a longer text of some words"]  # of unequal lengths, so that the mask has padding
_CHECK_TEXTS = ["one more text", "texts of another number", "a text that is longer than each of those of the export is"]
_MAX_ERROR = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.1}  # between backends, relative to the largest number


def compile_network(model: Any, name: str, dtype: str) -> None:
    """Make a SentenceTransformer run its network by OpenVINO on the CPU. It cannot be trained afterwards.

    Parameters
    ----------
    model : SentenceTransformer
        Its first module must be a Transformer for texts; the module is changed.
    name : str
        The name of the model in messages.
    dtype : {"float32", "bfloat16", "float16"}
        The type of products.

    Raises
    ------
    InputError
        The model is of another kind, cannot be exported, or its vectors differ after the export.
    """
    torch = import_optional("torch", "neural")
    transformer = model[0]
    kind = type(transformer).__name__
    if kind != "Transformer" or getattr(transformer, "module_output_name", None) != "token_embeddings":
        raise InputError(
            f"backend='openvino' needs a model whose first module is a Transformer with token vectors, found {kind} "
            f"in {name!r}; use backend='torch'"
        )
    network = transformer.model.eval()
    features = dict(transformer.tokenizer(_EXPORT_TEXTS, padding=True, return_tensors="pt"))
    checks = dict(transformer.tokenizer(_CHECK_TEXTS, padding=True, return_tensors="pt"))

    class Tokens(torch.nn.Module):  # type: ignore[misc, name-defined]
        """The network as a function of tensors by position."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *values: Any) -> Any:
            return self.network(**dict(zip(features, values, strict=True)), return_dict=True)["last_hidden_state"]

    class Compiled(torch.nn.Module):  # type: ignore[misc, name-defined]
        """The compiled network; it does not keep the weights of the original."""

        def __init__(self) -> None:
            super().__init__()
            self.config = network.config

        def forward(self, **inputs: Any) -> dict[str, Any]:
            values = [inputs[feature].numpy() for feature in features]
            return {"last_hidden_state": torch.from_numpy(run(values))}

    with (
        loading_model("model for backend='openvino'", name, {}),
        quiet_transformers(),
        warnings.catch_warnings(),
        torch.no_grad(),
    ):
        warnings.simplefilter("ignore")  # tracing warns about branches that depend on the shape of the mask
        tokens = Tokens().eval()
        run: Callable[[list[Any]], Any] = _openvino(tokens, features, dtype)
        expected, is_token = tokens(*checks.values()).numpy(), checks["attention_mask"].bool().numpy()
        off = np.abs(run([tensor.numpy() for tensor in checks.values()]) - expected)[is_token]
        if not off.max() <= _MAX_ERROR[dtype] * np.abs(expected).max():
            raise ValueError(f"its vectors differ from those of torch by {off.max():.3g}; use backend='torch'")
    transformer.model = Compiled().eval()


def _openvino(network: Any, features: dict[str, Any], dtype: str) -> Callable[[list[Any]], Any]:
    import openvino
    import torch

    converted = openvino.convert_model(network, example_input=tuple(features.values()))
    settings = {
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}[dtype],
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    compiled = openvino.Core().compile_model(converted, "CPU", settings)
    # Every call has its own request, since threads may encode at the same time.
    return lambda values: compiled.create_infer_request().infer(values)[0].copy()
