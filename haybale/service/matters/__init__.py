"""Several engines in one service, each a matter with its own judgements, rankers, users' rights, address and log."""
