#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numbers quantized as by bitsandbytes' quantize_blockwise: the nearest value of the dynamic map.

usage: blockwise.py FOLDER
Writes FOLDER/blockwise-signed.bin and FOLDER/blockwise-unsigned.bin: the 256 values of
bitsandbytes' dynamic map in float32, a code for each of the 1000 numbers that
tests/tensor/test_blockwise.c computes too, and the largest magnitude of each block of 256.  The map
is create_dynamic_map of bitsandbytes/functional.py with numpy instead of torch.
"""
import ctypes
import importlib.util
import os
import sys

import numpy

N, BLOCK = 1000, 256


def dynamic_map(signed):
    data = [0.0, 1.0]
    for i in range(7):
        cells = 2 ** i if signed else 2 ** (i + 1)
        edges = numpy.linspace(0.1, 1, cells + 1).astype(numpy.float32)
        means = (edges[:-1] + edges[1:]) / numpy.float32(2)
        values = (numpy.float32(10.0 ** (i - 6)) * means).tolist()
        data += values + ([-x for x in values] if signed else [])
    assert len(data) == 256
    return numpy.array(sorted(data), dtype=numpy.float32)


def numbers(signed):
    """Of either sign, over eight powers of ten."""
    i = numpy.arange(N, dtype=numpy.uint64)
    bits = i * numpy.uint64(2654435761) % numpy.uint64(2 ** 32)
    bits = (bits ^ (bits >> numpy.uint64(15))) * numpy.uint64(2246822519) % numpy.uint64(2 ** 32)
    unit = ((bits >> numpy.uint64(8)).astype(numpy.float32) + numpy.float32(1)) / numpy.float32(2 ** 24)
    power = (i % numpy.uint64(8)).astype(numpy.int64)
    x = unit.copy()
    for _ in range(7):
        x = numpy.where(power > 0, x * numpy.float32(0.1), x)
        power = power - 1
    return numpy.where(i % numpy.uint64(3) == 0, -x, x).astype(numpy.float32) if signed else x


def quantize(x, code):
    """Codes and the largest magnitude of a block."""
    largest = numpy.abs(x).max()
    scaled = numpy.clip(x * (numpy.float32(1) / largest), numpy.float32(-1), numpy.float32(1))
    return numpy.abs(scaled[:, None] - code).argmin(axis=1).astype(numpy.uint8), largest


def main(folder):
    for signed in (True, False):
        x, code = numbers(signed), dynamic_map(signed)
        blocks = [quantize(x[at:at + BLOCK], code) for at in range(0, N, BLOCK)]
        out = numpy.concatenate([codes for codes, _ in blocks])
        largest = numpy.array([each for _, each in blocks], dtype=numpy.float32)
        name = "blockwise-%s.bin" % ("signed" if signed else "unsigned")
        with open(os.path.join(folder, name), "wb") as f:
            f.write(code.tobytes() + out.tobytes() + largest.tobytes())


if __name__ == "__main__":
    main(sys.argv[1])
