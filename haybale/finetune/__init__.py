"""Training: pairs of paragraphs from judgements, and encoders fine-tuned on them for PARM."""

from haybale.finetune.batches import plan_batches
from haybale.finetune.recipe import RECIPES, Recipe
from haybale.finetune.trainer import TrainedEncoder, train_encoder
from haybale.finetune.training_pairs import training_pairs

__all__ = ["RECIPES", "Recipe", "TrainedEncoder", "plan_batches", "train_encoder", "training_pairs"]
