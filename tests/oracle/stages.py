#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the rows of a run through data stages and a batch ramp with NumPy.

    python tests/oracle/stages.py build/llamero

trains a tiny Llama on a mixture of three sources of token IDs, whose weights, row length and batch
size change in two stages while the batch grows.  The script draws the same documents from the
definitions in src/data/stream.h and src/config/batch_ramp.h (Philox in NumPy), and compares every
token of every step with `data show --json`: before the run, and from its checkpoints after it.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

SEED, STREAMS, WINDOW, STEPS = 5, 8, 6, 30
LENGTHS, DOCUMENTS = (7, 19, 4), (900, 400, 1500)
RNG_SOURCE, RNG_SHUFFLE = 2, 3
RAMP = dict(start=2, increment=2, samples=40)  # to 8 rows, and 12 in the last stage
STAGES = [dict(begin=0, weights=(0.6, 0.4, 0), tokens=16, rows=8),
          dict(begin=11, weights=(0.2, 0.3, 0.5), tokens=29, rows=8),
          dict(begin=20, weights=(0, 1, 3), tokens=29, rows=12)]
M64 = 2**64 - 1

CONFIG = """
[model]
dim = 16
n_layers = 1
n_heads = 2
n_kv_heads = 1
ffn_hidden = 24
vocab_size = 60000
[training]
seq_len = 16
local_batch_size = 2
global_batch_size = 8
batch_ramp = [2, 2, 40]
steps = 30
mixed_precision_param = "float32"
[data]
seed = 5
streams = 8
shuffle_window = 6
[[data.source]]
path = "0.npy"
weight = 0.6
[[data.source]]
path = "1.npy"
weight = 0.4
[[data.source]]
path = "2.npy"
weight = 0
[[data.stage]]
at_step = 11
weights = [0.2, 0.3, 0.5]
seq_len = 29
[[data.stage]]
at_step = 20
weights = [0, 1, 3]
global_batch_size = 12
[checkpoint]
enable = true
interval = 7
keep_latest_k = 0
"""


def philox(key, counter):
    """Philox4x32-10 (Salmon et al. 2011), the first two words of the block as one number."""
    k = [numpy.uint64(key & 0xFFFFFFFF), numpy.uint64(key >> 32)]
    c = [numpy.uint64(x) for x in counter]
    low, half = numpy.uint64(0xFFFFFFFF), numpy.uint64(32)
    for _ in range(10):
        a, b = numpy.uint64(0xD2511F53) * c[0], numpy.uint64(0xCD9E8D57) * c[2]
        c = [b >> half ^ c[1] ^ k[0], b & low, a >> half ^ c[3] ^ k[1], a & low]
        k = [k[0] + numpy.uint64(0x9E3779B9) & low, k[1] + numpy.uint64(0xBB67AE85) & low]
    return int(c[0]) << 32 | int(c[1])


def bits(purpose, step, position):
    return philox(SEED, (position & 0xFFFFFFFF, position >> 32, step & 0xFFFFFFFF,
                         step >> 32 ^ purpose << 24))


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M64
    return x ^ x >> 31


def order_of_window(stream, source, epoch, begin, count):
    order = list(range(count))
    key = mix(epoch ^ mix(begin))
    for i in range(count, 1, -1):
        j = i * bits(RNG_SHUFFLE, stream * len(LENGTHS) + source, key + i & M64) >> 64
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def documents(arrays, stream, source):
    """The documents that a stream reads of a source, epoch by epoch."""
    total = len(arrays[source])
    first, last = stream * total // STREAMS, (stream + 1) * total // STREAMS
    epoch = 0
    while True:
        for begin in range(first, last, WINDOW):
            count = min(WINDOW, last - begin)
            for i in order_of_window(stream, source, epoch, begin, count):
                yield arrays[source][begin + i]
        epoch += 1


class Stream:
    def __init__(self, arrays, number):
        self.number, self.draws, self.rest, self.carry = number, 0, [], []
        self.sources = [documents(arrays, number, s) for s in range(len(LENGTHS))]

    def row(self, weights, tokens):
        """tokens + 1 IDs, of which the last begins the next row."""
        row, self.rest = self.carry + self.rest[:tokens + 1 - len(self.carry)], \
            self.rest[tokens + 1 - len(self.carry):]
        while len(row) < tokens + 1:
            at = (bits(RNG_SOURCE, self.number, self.draws) >> 11) * 2.0**-53 * sum(weights)
            source = int(numpy.searchsorted(numpy.cumsum(weights), at, side="right"))
            self.draws += 1
            document = next(self.sources[source]).tolist()
            room = tokens + 1 - len(row)
            row, self.rest = row + document[:room], document[room:]
        self.carry = row[-1:]
        return row


def rows_of_steps(arrays):
    streams = [Stream(arrays, v) for v in range(STREAMS)]
    done = 0
    for step in range(STEPS):
        stage = [s for s in STAGES if s["begin"] <= step][-1]
        increments = (stage["rows"] - RAMP["start"]) // RAMP["increment"]
        rows = stage["rows"]
        if done <= RAMP["samples"]:
            rows = RAMP["start"] + int(done / (RAMP["samples"] / increments)) * RAMP["increment"]
        yield [streams[(done + i) % STREAMS].row(stage["weights"], stage["tokens"])
               for i in range(rows)]
        done += rows


def shown(program, folder, run, step):
    out = subprocess.run([program, "data", "show", run, "--step", str(step), "--json"], cwd=folder,
                         check=True, capture_output=True, text=True).stdout
    return [row["ids"] for row in json.loads(out)["data"]]


def main(program):
    program = str(pathlib.Path(program).resolve())
    folder = pathlib.Path(tempfile.mkdtemp())
    arrays, first = [], 0
    for i, (length, count) in enumerate(zip(LENGTHS, DOCUMENTS)):
        arrays.append(numpy.arange(first, first + length * count, dtype=numpy.uint16)
                      .reshape(count, length))
        first += length * count
        numpy.save(folder / f"{i}.npy", arrays[-1])
    (folder / "run.toml").write_text(CONFIG)
    expected = list(rows_of_steps(arrays))
    for run in ("run.toml", "out"):
        if run == "out":
            subprocess.run([program, "train", "run.toml", "job.dump_folder=out", "--quiet"],
                           cwd=folder, check=True)
        for step, rows in enumerate(expected, 1):
            assert shown(program, folder, run, step) == rows, (run, step)
        print(f"{run}: {STEPS} steps, {sum(map(len, expected))} rows, "
              f"{sum(len(r) for s in expected for r in s)} tokens equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
