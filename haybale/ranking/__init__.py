"""What all rankers share: the contract, ranker texts, saved rankers, training queries, and runs of many queries."""
