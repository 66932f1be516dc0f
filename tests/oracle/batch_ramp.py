#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the expected values of tests/config/test_batch_ramp.c in Python's own arithmetic.

    python tests/oracle/batch_ramp.py [MEGATRON]

With MEGATRON, a checkout that has RampupBatchsizeNumMicroBatchesCalculator (ROCm's 2b855baf), also
compares every step with that class.  Prints, for each ramp, the steps of a run with
--train-samples, the rows they read, the number of smaller steps, and a hash of the rows of every
step."""
import importlib.util
import logging
import sys

# start, increment, samples of the ramp, global batch, samples of the run
RAMPS = [(16, 8, 300000, 1024, 2000000), (16, 16, 5859375, 1536, 146484375), (2, 2, 7, 8, 60),
         (1, 3, 7, 10, 100), (8, 8, 1, 16, 64), (32, 32, 1000, 64, 500), (3, 1, 999999, 4, 12345)]


def rows_of_step(done, start, increment, samples, rows):
    """Rows of the step before which `done` rows were read: the ramp has equally long parts, and
    each adds an increment."""
    if done > samples:
        return rows
    part = samples / ((rows - start) // increment)
    return start + int(done / part) * increment


def run(start, increment, samples, rows, total, check):
    """Rows of every step: the ramp ends with the first step that begins after it, or after the
    run's samples; then whole steps follow."""
    done, sizes = 0, []
    while done <= samples and done <= total:
        sizes.append(rows_of_step(done, start, increment, samples, rows))
        check(done, sizes[-1])
        done += sizes[-1]
    while done + rows <= total:
        sizes.append(rows_of_step(done, start, increment, samples, rows))
        check(done, sizes[-1])
        done += sizes[-1]
    return sizes


def megatrons(path, start, increment, samples, rows):
    spec = importlib.util.spec_from_file_location(
        "calculator", f"{path}/megatron/core/num_microbatches_calculator.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    c = module.RampupBatchsizeNumMicroBatchesCalculator(rows, 1, 1, False, 1, start, increment,
                                                        samples)

    def check(done, size):
        c.update(done, True)
        assert c.get_current_global_batch_size() == size == c.get(), (done, size)

    return check


logging.disable()
for start, increment, samples, rows, total in RAMPS:
    check = lambda done, size: None
    if len(sys.argv) > 1:
        check = megatrons(sys.argv[1], start, increment, samples, rows)
    sizes, value = run(start, increment, samples, rows, total, check), 0
    for size in sizes:
        value = (value * 31 + size) % 2**64
    print(f"{{{start}, {increment}, {samples}, {rows}, {total}, {len(sizes)}, {sum(sizes)}, "
          f"{sum(size < rows for size in sizes)}, {value}u}},")
