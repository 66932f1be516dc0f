#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A synthetic neural pile: spike counts of two species, in Parquet files like neural-pile's.

    python tools/neural_pile.py FOLDER [--size 1.0] [--seed 0]
    python tools/neural_pile.py tests/data/spikes --tiny      the tests' data: pyarrow 26, numpy 2.4

FOLDER/rodent and FOLDER/primate get train and test files with the columns spike_counts
(list<list<uint8>>, [neuron][bin of 20 ms]), subject_id, session_id, segment_id and source_dataset.
--size multiplies the number of training sessions.  Needs numpy and pyarrow.

Counts are Poisson, and their rates follow a rotating latent state driven by noise, as in
motor cortex (Churchland et al. 2012; the model is that of Macke et al. 2011):

    z(t+1) = d R(w) z(t) + s e(t),        e ~ N(0, I),  s so that z has unit variance
    c_i(t) ~ Poisson(exp(b_i + g (cos(p_i) z_1(t) + sin(p_i) z_2(t))))

Neurons are in the order of their preferred phase p_i, as in the reordered piles; b_i differs from
session to session.  The species differ in rotation speed, gain, rates and number of neurons, and
the primate has few sessions.  For each file it prints counts, spikes, and the bits/spike of the
true rates relative to a homogeneous rate of each neuron and session: an upper bound for any
predictor, since it does not observe z.
"""
import argparse
import math
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SPECIES = {
    "rodent": dict(neurons=(13, 15), period=30.0, decay=0.985, gain=1.6, rate=-1.0,
                   train=500, test=8, bins=400),
    "primate": dict(neurons=(18, 20), period=22.0, decay=0.98, gain=1.5, rate=-0.8,
                    train=12, test=8, bins=400),
}
TINY = {"rodent": dict(SPECIES["rodent"], neurons=(5, 6), period=12.0, train=12, test=3, bins=60)}


def session(rng, s):
    """Counts and the rates they are drawn from, [neuron][bin]."""
    n = int(rng.integers(s["neurons"][0], s["neurons"][1] + 1))
    w = 2 * math.pi / s["period"]
    turn = s["decay"] * np.array([[math.cos(w), -math.sin(w)], [math.sin(w), math.cos(w)]])
    z = rng.standard_normal(2)
    phase = 2 * math.pi * (np.arange(n) + 0.3 * rng.standard_normal(n)) / n
    base = s["rate"] + 0.4 * rng.standard_normal(n)
    tuning = s["gain"] * np.stack([np.cos(phase), np.sin(phase)], 1)
    rates = np.empty((n, s["bins"]))
    for t in range(s["bins"]):
        rates[:, t] = np.exp(base + tuning @ z)
        z = turn @ z + math.sqrt(1 - s["decay"] ** 2) * rng.standard_normal(2)
    rates = np.minimum(rates, 50)
    return rng.poisson(rates).astype(np.uint8), rates


def log_likelihood(counts, rates):
    """Without log c!, which does not depend on the rates."""
    rates = np.broadcast_to(np.maximum(rates, 1e-9), counts.shape)
    return float((counts * np.log(rates) - rates).sum())


def write(folder, species, split, sessions):
    names = "subject_id", "session_id", "segment_id", "source_dataset"
    columns = {name: [] for name in ("spike_counts", *names)}
    gain, tokens, spikes = 0.0, 0, 0
    for i, (counts, rates) in enumerate(sessions):
        columns["spike_counts"].append(counts.tolist())
        columns["subject_id"].append(f"{species}_{i % 4}")
        columns["session_id"].append(f"{split}_{i}")
        columns["segment_id"].append("segment_0")
        columns["source_dataset"].append("synthetic")
        constant = counts.mean(1, keepdims=True)
        gain += log_likelihood(counts, rates) - log_likelihood(counts, constant)
        tokens += (counts.shape[0] + 1) * counts.shape[1]
        spikes += int(counts.sum())
    text = pa.string()
    counts = ("spike_counts", pa.list_(pa.list_(pa.uint8())))
    schema = pa.schema([counts] + [(name, text) for name in names])
    path = os.path.join(folder, species, f"{split}-00000-of-00001.parquet")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    pq.write_table(pa.table(columns, schema=schema), path, compression="zstd")
    print(f"{path}: {len(sessions)} sessions, {tokens} tokens, {spikes} spikes, "
          f"true rates {gain / math.log(2) / spikes:.4f} bits/spike")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--size", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true")
    a = parser.parse_args()
    for number, (species, s) in enumerate((TINY if a.tiny else SPECIES).items()):
        for part, split in enumerate(("train", "test")):
            rng = np.random.default_rng([a.seed, number, part])
            count = s["test"] if split == "test" else max(1, round(a.size * s["train"]))
            write(a.folder, species, split, [session(rng, s) for _ in range(count)])


if __name__ == "__main__":
    main()
