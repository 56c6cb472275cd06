"""Choose the members of the learner of reviews and how they earn weights, leaving out one topic at a time.

    python benchmarks/bench_learner.py FOLDER [--seeds 3]

FOLDER has record files as in bench_review.py, whose runs of ASReview (``review.json``) are compared with. Each topic is
simulated with each setting, one document at a time, from one relevant and one irrelevant document and without the
topic's text. Finished simulations are kept in ``learner.json`` and are not run again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
from bench_review import simulated
from provenance import commit, options, provenance, read_json, shown, table, write_json, write_page

from haybale.review.learner import MEMBERS

EIGHT, FIVE = MEMBERS, MEMBERS[:5]
UNBIASED, EVEN, THREEFOLD = MEMBERS[5:]
TRACKING: dict[str, Any] = {"share_for_all": 0.002}
SETTINGS: dict[str, dict[str, Any]] = {
    "eight members": {"members": EIGHT},
    "eight, rank constant 40": {"members": EIGHT, "rank_constant": 40.0},
    "eight, rank constant 80": {"members": EIGHT, "rank_constant": 80.0},
    "eight, a share of .002 for all": {"members": EIGHT, **TRACKING},
    "eight, a share of .01 for all": {"members": EIGHT, "share_for_all": 0.01},
    "eight, equal weights": {"members": EIGHT, "share_for_all": 1.0},
    "eight, rank constant 10, a share of .002 for all": {"members": EIGHT, **TRACKING, "rank_constant": 10.0},
    "eight, rank constant 40, a share of .002 for all": {"members": EIGHT, **TRACKING, "rank_constant": 40.0},
    "the first five, a share of .002": {"members": FIVE, **TRACKING},
    "all but that of ratio 1, a share of .002": {"members": (*FIVE, UNBIASED, THREEFOLD), **TRACKING},
    "all but that of ratio 3, a share of .002": {"members": (*FIVE, UNBIASED, EVEN), **TRACKING},
}
FORMER = "six members, standardised scores added (before)"  # runs of earlier code, which are in learner.json if at all
TEXT = """
Reviews of ten topics are simulated without the topic's text, as in [review.md](review.md), from the same two documents
as ASReview's there. The members are those of `haybale/review/learner.py`: five that the learner had before, one without
a bias, and two whose relevant documents together count once or three times as much as the irrelevant ones. Unless a row
says so, the rank constant is 20, and no share of all weight is given to all members alike after each judgement.
""".strip()
LEFT_OUT = """
Each topic is ranked with the setting that has the highest mean of WSS@95 over the other topics and all seeds. Nothing
of the topic itself takes part in that choice.
""".strip()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    a = parser.parse_args()
    path = a.results / "learner.json"
    runs: list[dict[str, Any]] = read_json(path, [])
    done = {(run["topic"], run["setting"], run["seed"]) for run in runs}
    for seed in range(1, a.seeds + 1):
        for records in sorted(a.folder.glob("*/records.csv.gz"), key=lambda file: file.stat().st_size):
            for setting, values in SETTINGS.items():
                topic = records.parent.name
                if (topic, setting, seed) not in done:
                    wss = simulated(records, {}, "random", seed, **values)["wss"]
                    runs.append({"topic": topic, "setting": setting, "seed": seed, "commit": commit(), "wss": wss})
                    write_json(path, runs)
    peers = [run for run in read_json(a.results / "review.json", []) if run["by"] == "ASReview"]
    where_from = provenance(shown("bench_learner.py", sys.argv[1:]))
    write_page(a.results / "learner.md", [*page(pd.DataFrame(runs), pd.DataFrame(peers)), "", where_from])


def page(runs: pd.DataFrame, peers: pd.DataFrame) -> list[str]:
    """Return the page of all settings, and of the choice without each topic."""
    n_settings = runs[runs.setting != FORMER].groupby(["topic", "seed"]).setting.nunique()
    complete = n_settings[n_settings == len(SETTINGS)].index  # topics and seeds with all settings
    runs = runs.set_index(["topic", "seed"]).loc[complete]
    asreview = peers.set_index(["topic", "seed"]).wss.reindex(runs.index.unique())
    wss = runs.reset_index().pivot_table(index="topic", columns="setting", values="wss")
    peer = asreview.groupby("topic").mean()
    differences = wss.sub(peer, axis=0)
    lines = ["# The learner of reviews", "", TEXT, "", "## Difference from ASReview, in points of WSS@95", ""]
    rows = [
        (setting, *(f"{value:+.1f}" for value in differences[setting]), f"{differences[setting].mean():+.1f}")
        for setting in [*SETTINGS, *({FORMER} & set(differences))]
    ]
    wss = wss[list(SETTINGS)]
    lines += table(" | ".join(["setting", *differences.index, "mean"]), rows)
    lines += ["", "## Leaving one topic out", "", LEFT_OUT, ""]
    chosen = {topic: wss.drop(topic).mean().idxmax() for topic in wss.index}
    values = pd.Series({topic: wss.loc[topic, setting] for topic, setting in chosen.items()})
    rows = [
        (topic, chosen[topic], f"{values[topic]:.1f}", f"{peer[topic]:.1f}", f"{values[topic] - peer[topic]:+.1f}")
        for topic in wss.index
    ]
    rows.append(("mean", "", f"{values.mean():.1f}", f"{peer.mean():.1f}", f"{(values - peer).mean():+.1f}"))
    lines += table("topic | setting chosen by the other topics | WSS@95, % | ASReview | difference", rows)
    seeds = ", ".join(str(seed) for seed in sorted(set(runs.index.get_level_values("seed"))))
    commits = ", ".join(sorted(set(runs.commit)))
    return [*lines, "", f"Means over the seeds {seeds}; runs of commit {commits}."]


if __name__ == "__main__":
    main()
