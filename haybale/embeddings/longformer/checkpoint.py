"""Reads a Longformer as transformers or sentence-transformers save it; refuses what is none, or only a part of one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from haybale.errors import InputError
from haybale.extras import require


@dataclass(frozen=True)
class Checkpoint:
    """``state`` by the names of LongformerModel, on the CPU, in the dtype it was saved in."""

    config: Any
    state: dict[str, Tensor]
    tokenizer: Any


def read_checkpoint(model: str) -> Checkpoint:
    """``model`` is a hub id or a folder; the heads of task models are left out.

    Errors: :class:`InputError` for what cannot be reached, is no Longformer, lacks its tokenizer, or lacks weights.
    """
    transformers = require("transformers", "neural")
    where = _transformer_folder(model)
    with _quiet(transformers):
        try:
            config = transformers.AutoConfig.from_pretrained(where)
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"cannot load the Longformer {model!r}: {error}") from error
        _check_config(model, config)
        state = _read_state(transformers, model, where)
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(where)
        except Exception as error:  # the library raises whatever its parsers raise
            raise InputError(f"cannot load the tokenizer of the Longformer {model!r}: {error}") from error
    # Without files, transformers makes up a tokenizer that knows the special tokens only.
    if not getattr(tokenizer, "is_fast", False) or len(tokenizer) <= len(tokenizer.all_special_ids):
        raise InputError(
            f"cannot load the tokenizer of the Longformer {model!r}: expected tokenizer.json or vocab.json"
        )
    if len(tokenizer) > config.vocab_size:
        raise InputError(f"{model!r}: the tokenizer has {len(tokenizer)} tokens, the model {config.vocab_size}")
    return Checkpoint(config, state, tokenizer)


def stack_settings(folder: str | Path) -> dict[str, Any]:
    """The parameters of LongformerEncoder that a folder of sentence-transformers holds."""
    folder = Path(folder)
    modules = {Path(m["type"].replace(".", "/")).name: m["path"] for m in _json(folder / "modules.json", [])}
    saved = _json(folder / "config_sentence_transformers.json", {})
    pooling = _json(folder / modules.get("Pooling", "1_Pooling") / "config.json", {})
    prompts = saved.get("prompts") or {}
    mode = pooling.get("pooling_mode") or ("cls" if pooling.get("pooling_mode_cls_token") else "mean")
    return {
        "pooling": mode if isinstance(mode, str) else "+".join(mode),
        "normalize": "Normalize" in modules,
        "query_prompt": prompts.get("query") or "",
        "passage_prompt": prompts.get(saved.get("default_prompt_name") or "document") or "",
        "max_length": _json(folder / "sentence_bert_config.json", {}).get("max_seq_length"),
    }


def _transformer_folder(model: str) -> str:
    """The folder of the Transformer within one of sentence-transformers; anything else is returned as it is."""
    modules = _json(Path(model) / "modules.json", [])
    return str(Path(model) / modules[0]["path"]) if modules else model


def _check_config(model: str, config: Any) -> None:
    if config.model_type != "longformer":
        raise InputError(
            f"{model!r}: expected a Longformer checkpoint (model_type 'longformer'), found {config.model_type!r}"
        )
    windows, layers = config.attention_window, config.num_hidden_layers
    windows = [windows] * layers if isinstance(windows, int) else list(windows)
    if len(windows) != layers or any(window < 2 or window % 2 for window in windows):
        raise InputError(f"{model!r}: expected an even attention_window for each of {layers} layers, found {windows}")
    config.attention_window = windows


def _read_state(transformers: Any, model: str, where: str) -> dict[str, Tensor]:
    try:
        standard, info = transformers.LongformerModel.from_pretrained(where, output_loading_info=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot load the weights of the Longformer {model!r}: {error}") from error
    missing = sorted(name for name in info["missing_keys"] if not name.startswith("pooler."))
    ours = ("embeddings.", "encoder.", "longformer.")  # of the encoder; other names are of a task's head
    unexpected = sorted(n for n in info["unexpected_keys"] if n.startswith(ours) and not n.endswith("position_ids"))
    if missing or unexpected or info["mismatched_keys"]:
        raise InputError(
            f"{model!r}: the weights are not those of its config: {len(missing)} missing {missing[:3]}, "
            f"{len(unexpected)} unexpected {unexpected[:3]}, of another shape {sorted(info['mismatched_keys'])[:3]}"
        )
    unmade = {name for name in info["missing_keys"] if name.startswith("pooler.")}
    return {name: tensor.detach() for name, tensor in standard.state_dict().items() if name not in unmade}


def _json(path: Path, default: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else default


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No report of missing heads and no bars while loading: what matters is checked here, and raised."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
