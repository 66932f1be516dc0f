#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference results of FP8 rounding and scales, computed by NumPy and ml_dtypes.

    python tests/oracle/float8.py        # from the repository's root; requires numpy and ml_dtypes

writes tests/ops/data/float8.txt:
    all FORMAT SCALE CRC       every bf16 value times the scale, rounded: CRC-32C of the results as bf16
    sweep FORMAT SCALE CRC     the same for f32 with the bits i * 2654435761, i below 2^18
    one FORMAT X Y             some single values, for debugging
and tests/model/data/float8.txt:
    current FORMAT AMAX SCALE
    delayed FORMAT ALGORITHM MARGIN LENGTH, then a line for each step: AMAX SCALE
All numbers are bits in hexadecimal.  NaN is written as 7fc0.

Formulas: torchao's tensorwise scaling (in f64, amax at least 1e-12); Transformer Engine's delayed
scaling (in f32), including how it rolls its history.
"""
import pathlib

import ml_dtypes
import numpy as np

FORMATS = {"E4M3": (ml_dtypes.float8_e4m3fn, 448.0), "E5M2": (ml_dtypes.float8_e5m2, 57344.0)}
SWEEP = 1 << 18
TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def bits(x):
    return int(np.float32(x).view(np.uint32))


def rounded(x, scale, name):
    """Bits, as bf16, of scale * x rounded to the format."""
    kind, largest = FORMATS[name]
    with np.errstate(all="ignore"):
        scaled = x.astype(np.float32) * np.float32(scale)
        eight = np.clip(scaled, -largest, largest).astype(np.float32).astype(kind)
    found = (eight.astype(np.float32).view(np.uint32) >> 16).astype("<u2")
    found[np.isnan(scaled)] = 0x7FC0
    return found


def rounding():
    every = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    sweep = (np.arange(SWEEP, dtype=np.uint64) * 2654435761).astype(np.uint32).view(np.float32)
    lines = []
    for name in FORMATS:
        for scale in (1.0, 3.7e-2, 12345.678, 2.0 ** -12, 4.48e14, 1e-30):
            lines.append(f"all {name} {bits(scale):08x} {crc32c(rounded(every, scale, name).tobytes()):08x}")
            lines.append(
                f"sweep {name} {bits(scale):08x} {crc32c(rounded(sweep, scale, name).tobytes()):08x}")
        for x in (0.0, -0.0, 1.0, 1.0625, 1.1875, -1.125, 2.0 ** -6, 2.0 ** -9, 2.0 ** -10,
                  1.5 * 2.0 ** -10, 2.0 ** -14, 2.0 ** -16, 2.0 ** -17, 440.0, 447.0, 464.0, 465.0,
                  500.0, 57344.0, 61440.0, 1e38, np.inf, -np.inf, np.nan):
            y = rounded(np.array([x], np.float32), 1.0, name)[0]
            lines.append(f"one {name} {bits(x):08x} {int(y):04x}")
    return lines


def current(amax, name):
    largest = FORMATS[name][1]
    return np.float32(np.float64(largest) / np.maximum(np.float64(amax), 1e-12))


def te_step(history, scale, largest, algorithm, margin):
    """One update as in Transformer Engine; history[0] is the newest amax."""
    amax = history[0] if algorithm == "most_recent" else history.max()
    with np.errstate(all="ignore"):
        new = (np.float32(largest) / amax) / np.float32(2 ** margin)
    if not amax > 0 or not np.isfinite(amax):
        new = scale
    elif np.isinf(new):
        new = np.finfo(np.float32).max
    history = np.roll(history, -1) if len(history) > 1 else history.copy()
    history[0] = 0
    return history, np.float32(new)


def scales():
    lines = []
    rng = np.random.default_rng(1)
    odd = [0.0, 1e-45, 1e-38, 9e-13, 1e-12, 1.1e-12, 1.0, 448.0, 57344.0, 3e38, np.inf]
    for name in FORMATS:
        for amax in odd + list(np.exp(rng.uniform(-40, 40, 64))):
            amax = np.float32(amax)
            lines.append(f"current {name} {bits(amax):08x} {bits(current(amax, name)):08x}")
    for name, (_, largest) in FORMATS.items():
        for algorithm in ("max", "most_recent"):
            for margin, length in ((0, 1), (0, 4), (1, 3), (2, 16), (0, 1024)):
                lines.append(f"delayed {name} {algorithm} {margin} {length}")
                history, scale = np.zeros(length, np.float32), np.float32(0)
                for step in range(40):
                    amax = np.float32(np.exp(rng.normal(0, 3) - step / 8))
                    amax = np.float32({7: 0.0, 8: 0.0, 15: 1e-42, 16: 1e-42, 17: 0.0}.get(step, amax))
                    history[0] = amax
                    history, scale = te_step(history, scale, largest, algorithm, margin)
                    lines.append(f"{bits(amax):08x} {bits(scale):08x}")
    return lines


def main():
    for path, lines in (("tests/ops/data/float8.txt", rounding()),
                        ("tests/model/data/float8.txt", scales())):
        head = f"# tests/oracle/float8.py: numpy {np.__version__}, ml_dtypes {ml_dtypes.__version__}"
        pathlib.Path(path).write_text("\n".join([head] + lines) + "\n")


if __name__ == "__main__":
    main()
