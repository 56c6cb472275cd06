"""Longformer as it is meant, without padding: the same numbers as transformers' LongformerModel, several times faster.

:mod:`~haybale.embeddings.longformer.checkpoint` reads the weights,
:mod:`~haybale.embeddings.longformer.model` runs them over the tokens of all texts in one row,
:mod:`~haybale.embeddings.longformer.attention` is the band, and
:mod:`~haybale.embeddings.longformer.encoder` is what the rest of haybale uses. All need the extra ``neural``.
"""
