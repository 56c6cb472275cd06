"""A ranker, an encoder and a reader of a package outside haybale."""
