#!/usr/bin/env python3
"""Prediction against outcome over results of `pinline ablate`, as Markdown.

    figures.py OUT/*/result.json

For each cell its rate, what was predicted, and what "the loader or the step, whichever is slower" would
have said; then over all results how far levels and ratios to the first cell are off, the rest of the
host's time that no stage explains, and where the seconds went. Needs Python alone.
"""
import json
import math
import os
import statistics
import sys

LEVEL = 0.10  # a predicted level is right within this share
RATIO = 0.03  # a predicted ratio within this, or within the measured half-width where that is wider
# Student's t, 97.5 %, by degrees of freedom.
T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
     2.131, 2.120, 2.110, 2.101, 2.093, 2.086]


def paired(over, under):
    """The ratio and its half-width, both as logarithms, paired by round."""
    logs = [math.log(a / b) for a, b in zip(over, under)]
    if len(logs) < 2:
        return logs[0], math.inf
    t = T[min(len(logs) - 2, len(T) - 1)]
    return statistics.mean(logs), t * statistics.stdev(logs) / math.sqrt(len(logs))


def root_mean_square(values):
    return math.sqrt(sum(v * v for v in values) / len(values)) if values else 0.0


def percent(logarithm):
    return f"{100 * (math.exp(logarithm) - 1):+.1f} %"


class Totals:
    def __init__(self):
        self.levels, self.trivial, self.ratios_right = [], [], []
        self.spread, self.rest = 1.0, 0.0


def rest_share(cell):
    rests = [r["host"]["rest"] / sum(r["epoch_s"]) for r in cell["rounds"] if r.get("host")]
    return max(rests, default=0.0)


def print_result(path, totals):
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    predictions = {p["cell"]: p for p in result["predictions"]}
    rates = {c["name"]: [r["samples_per_s"] for r in c["rounds"]] for c in result["cells"]}
    first = result["cells"][0]["name"]
    print(f"\n### {os.path.basename(os.path.dirname(os.path.abspath(path)))}\n")
    print("| cell | samples/s | predicted | off by | without copies | ratio | predicted | off by | "
          "half-width |\n|---|---|---|---|---|---|---|---|---|")
    for cell in result["cells"]:
        name = cell["name"]
        predicted = predictions.get(name)
        totals.rest = max(totals.rest, rest_share(cell))
        if not predicted or not rates[name] or cell["repeats"]:
            continue
        median = statistics.median(rates[name])
        level = math.log(predicted["samples_per_s"] / median)
        trivial = math.log(predicted["trivial_samples_per_s"] / median)
        totals.levels.append(level)
        totals.trivial.append(trivial)
        line = (f"| {name} | {median:.0f} | {predicted['samples_per_s']:.0f} | {percent(level)} | "
                f"{percent(trivial)} |")
        if name != first and first in predictions:
            ratio, half = paired(rates[name], rates[first])
            expected = math.log(predicted["samples_per_s"] / predictions[first]["samples_per_s"])
            right = abs(math.exp(expected - ratio) - 1) <= max(RATIO, math.exp(half) - 1)
            totals.ratios_right.append(right)
            line += (f" {math.exp(ratio):.3f} | {math.exp(expected):.3f} | "
                     f"{percent(expected - ratio)}{'' if right else ' (missed)'} | "
                     f"{100 * (math.exp(half) - 1):.1f} % |")
        else:
            line += " | | | |"
        print(line)
    medians = [statistics.median(r) for r in rates.values() if r]
    if medians:
        totals.spread = max(totals.spread, max(medians) / min(medians))
    for failure in result["failures"]:
        print(f"\n**{failure}**")
    rounds = result.get("rounds", [])
    if rounds:
        mean = {k: statistics.mean(r[k] for r in rounds)
                for k in ("wall_s", "start_s", "setup_s", "settle_s", "timed_s")}
        print(f"\n{len(rounds)} rounds of {mean['wall_s']:.1f} s: process {mean['start_s']:.1f}, "
              f"setting up {mean['setup_s']:.1f}, settling {mean['settle_s']:.1f}, timed "
              f"{mean['timed_s']:.1f}; the parts alone {result['ceilings']['measured_in_s']:.1f} s.")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    totals = Totals()
    for path in sys.argv[1:]:
        print_result(path, totals)
    if not totals.levels:
        sys.exit("no cell has both a prediction and a round")
    right = sum(abs(math.exp(v) - 1) <= LEVEL for v in totals.levels)
    own, trivial = root_mean_square(totals.levels), root_mean_square(totals.trivial)
    print(f"\n- Levels within {100 * LEVEL:.0f} %: {right} of {len(totals.levels)}; root mean square "
          f"{100 * own:.1f} %, without copies {100 * trivial:.1f} %"
          + (f" ({own / trivial:.2f} of it)" if trivial > 0 else ""))
    print(f"- Ratios within {100 * RATIO:.0f} % or the half-width: {sum(totals.ratios_right)} of "
          f"{len(totals.ratios_right)}")
    print(f"- Widest spread between the cells of a job: {totals.spread:.2f} times")
    print(f"- Host's time that no stage explains: {100 * totals.rest:.2f} % at most")


if __name__ == "__main__":
    main()
