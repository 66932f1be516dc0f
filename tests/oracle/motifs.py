# SPDX-License-Identifier: Apache-2.0
"""Motif pickles like those of gpt-neuro-arch's tokenizer, and the IDs that its readers produce.

    python motifs.py write FOLDER           FOLDER/small.pkl, tests/data/motifs
    python motifs.py ids MOTIFS COUNTS      IDs per row, for JSON [[neuron][bin], ...] and 4 neurons

Made with Python 3.11 and numpy 2.4; the files do not depend on the versions.
"""
import json
import pickle
import sys

import numpy as np


def write(folder):
    """Most patches of three bins of counts 0..2; missing ones map to a similar patch."""
    patches = [bytes((a, b, c)) for a in range(3) for b in range(3) for c in range(3)]
    index = {patch: min(i, 8) if i < 20 else i % 9 for i, patch in enumerate(patches[:-2])}
    for protocol in (3, 4, 5):
        with open(f"{folder}/small{protocol}.pkl", "wb") as file:
            content = {"index_map": index, "patch_size": (1, 3), "k_limit": 8}
            pickle.dump(content, file, protocol=protocol)


def ids(motifs, counts, neurons=4):
    """Rejects sessions of more neurons, whose block would be random."""
    with open(motifs, "rb") as file:
        t = pickle.load(file)
    bins, out = t["patch_size"][1], []
    for row in counts:
        a = np.array(row, dtype=np.uint8)
        a = np.tile(a, (-(-neurons // len(a)), 1))[:neurons]
        a = np.pad(a, ((0, 0), (0, -a.shape[1] % bins)))
        line = []
        for at in range(0, a.shape[1], bins):
            line.append(t["k_limit"] + 1)
            line += [t["index_map"].get(a[n, at:at + bins].tobytes(), 0) for n in range(neurons)]
        out.append(line)
    return out


if sys.argv[1] == "write":
    write(sys.argv[2])
else:
    for line in ids(sys.argv[2], json.loads(sys.argv[3])):
        print(*line, sep=", ")
