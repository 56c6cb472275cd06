"""What all rankers share: the contract, ranker texts, saved rankers, training queries, and tasks for many queries."""
