"""Training: pairs of paragraphs from judgements, and encoders fine-tuned on them for PARM."""

from haybale.training.batches import plan_batches
from haybale.training.pairs import training_pairs
from haybale.training.recipe import RECIPES, Recipe
from haybale.training.trainer import TrainedEncoder, train_encoder

__all__ = ["RECIPES", "Recipe", "TrainedEncoder", "plan_batches", "train_encoder", "training_pairs"]
