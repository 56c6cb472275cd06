"""Parts of haybale in a package outside it: a ranker, an encoder, a reader, a command and a stopping rule."""
