"""Prepare a model for training (towers, frozen layers, adapters), and save the trained model."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from haybale.embeddings import LongformerEncoder, SentenceTransformerEncoder, encoder_maker
from haybale.embeddings.sentence_transformer import length_limit
from haybale.errors import InputError
from haybale.extras import import_optional
from haybale.finetune.recipe import Recipe


class Trainee:
    """A model in training.

    ``model`` is a ``SentenceTransformer``, which the library's trainer trains; ``encoder`` encodes with its weights.

    Parameters
    ----------
    name : str
        An encoder text (see :mod:`haybale.embeddings.encoder`) that names a neural encoder.
    recipe : Recipe
    device : str, optional
        ``"cpu"``, ``"cuda"``, …; default: a GPU if there is one.
    random_state : int, optional
        Seed of the initial weights of adapters.
    """

    def __init__(self, name: str, recipe: Recipe, device: str | None, random_state: int | None) -> None:
        self.name, self.recipe = name, recipe
        maker = encoder_maker(name, device=device)
        if maker.func not in (LongformerEncoder, SentenceTransformerEncoder):
            raise InputError(
                f"the encoder {name!r} cannot be trained; give a Longformer or sentence-transformers model"
            )
        encoder = maker()
        self.is_longformer = isinstance(encoder, LongformerEncoder)
        if self.is_longformer:
            from haybale.finetune.trainable_longformer import packed_model

            if recipe.towers == 2 or recipe.lora_rank:
                raise InputError(f"{name!r} is a Longformer, which needs towers=1 and no LoRA; change the recipe")
            encoder.pooling = recipe.pooling or encoder.pooling
            encoder.max_length = min(encoder.max_length, recipe.max_length or encoder.max_length)
            self.encoder, self.model = encoder, packed_model(encoder)
        else:
            self.model = self._built(encoder.model)
            length = min(filter(None, (recipe.max_length, length_limit(self.model))), default=None)
            self.encoder = SentenceTransformerEncoder(self.model, max_length=length, dtype=self.dtype)
            self.encoder.model_name = name
        self._freeze(random_state)

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda"``."""
        return str(self.model.device.type)

    @property
    def dtype(self) -> str:
        """The type of matrix products, with ``"auto"`` resolved."""
        if self.recipe.dtype != "auto" or self.device == "cpu":
            return self.recipe.dtype.replace("auto", "float32")
        return "bfloat16" if import_optional("torch", "neural").cuda.is_bf16_supported() else "float16"

    @property
    def has_two_towers(self) -> bool:
        """Whether queries and documents are encoded by different towers."""
        return type(self.model[0]).__name__ == "Router"

    def prompts(self, columns: list[str]) -> dict[str, str]:
        """Return the prompts by column; columns without a prompt are left out."""
        if self.is_longformer:
            return {}
        kinds = {name: "query" if name == "anchor" else "document" for name in columns}
        prompts = {name: self.encoder._prompt(kind) for name, kind in kinds.items()}
        return {name: prompt for name, prompt in prompts.items() if prompt}

    def _built(self, model: Any) -> Any:
        """Return the model with the pooling and the towers of the recipe."""
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import Router
        from sentence_transformers.sentence_transformer.modules import Pooling

        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise InputError(f"the encoder {self.name!r} has no trainable weights; choose another model")
        modules, prompts = list(model.children()), {"prompts": model.prompts}
        if self.recipe.pooling is not None:
            dim = modules[0].get_embedding_dimension()
            modules = [modules[0], Pooling(dim, self.recipe.pooling)]
        if self.recipe.towers == 2 and not isinstance(modules[0], Router):
            modules = [Router.for_query_document(query_modules=modules, document_modules=deepcopy(modules))]
        return SentenceTransformer(modules=modules, device=str(model.device), **prompts)

    def _freeze(self, random_state: int | None) -> None:
        """Freeze the embeddings and the first layers or, with LoRA, all weights except those of the adapters."""
        torch = import_optional("torch", "neural")
        if self.recipe.lora_rank:
            peft = import_optional("peft", "train")
            adapters = peft.LoraConfig(
                r=self.recipe.lora_rank, lora_alpha=2 * self.recipe.lora_rank, target_modules="all-linear"
            )
            with torch.random.fork_rng():
                torch.manual_seed(random_state or 0)
                for transformer in self._transformers():
                    peft.inject_adapter_in_model(adapters, transformer)
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad_("lora_" in name)
        elif n := self.recipe.frozen_layers:
            for transformer in self._transformers():
                n_layers = transformer.config.num_hidden_layers
                lists = (module for module in transformer.modules() if isinstance(module, torch.nn.ModuleList))
                layers = next((module for module in lists if len(module) == n_layers), None)
                if layers is None or n >= n_layers:
                    raise InputError(
                        f"frozen_layers must be less than the {n_layers} layers of {self.name!r}, found {n}"
                    )
                for name, parameter in transformer.named_parameters():
                    if "embeddings" in name:
                        parameter.requires_grad_(False)
                layers[:n].requires_grad_(False)

    def _transformers(self) -> list[Any]:
        """Return the transformers in the model, one for each tower."""
        if self.is_longformer:
            return [self.encoder.model]
        transformers = {
            id(module.auto_model): module.auto_model for module in self.model.modules() if hasattr(module, "auto_model")
        }
        if not transformers:
            raise InputError(f"the encoder {self.name!r} has no transformer layers; set frozen_layers=0 and no LoRA")
        return list(transformers.values())

    def save(self, folder: Path) -> None:
        """Write the model in the format of sentence-transformers."""
        if self.is_longformer:
            from haybale.finetune.trainable_longformer import save_longformer

            save_longformer(self.encoder, folder)
            return
        if self.recipe.lora_rank:
            for transformer in self._transformers():
                _merge(transformer)
        self.model.save_pretrained(str(folder), create_model_card=False)


def _merge(model: Any) -> None:
    """Merge the adapters into the weights that they adapt."""
    from peft.tuners.lora import LoraLayer

    for name, module in list(model.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, module.get_base_layer())
    for name in ("peft_config", "_hf_peft_config_loaded"):
        model.__dict__.pop(name, None)
