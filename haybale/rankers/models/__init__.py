"""The models that rankers learn: numbers and runs in, weights out; no model knows a ranker."""
