/* check.h -- the checks of `llamero doctor`; each adds its findings. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "doctor/findings.h"

#include <stdint.h>

struct hardware;

/* Version, compiler, libraries. */
void check_program(struct findings *f);
/* Whether this program was built with MPI, and can join the ranks it was started with. */
void check_ranks(struct findings *f);
/* Load average: call this before the checks that cause load themselves. */
void check_load(struct findings *f);
/* CPU model, usable cores, ISAs. */
void check_processor(struct findings *f);
void check_clock(struct findings *f);
void check_memory(struct findings *f);
/* Resource limits (ulimit). */
void check_limits(struct findings *f);
/* The GPUs that this program can use, and the measured speed of the first one. */
void check_gpus(struct findings *f);
/* GEMMs below this fraction of the peak are slow for such a GPU: 3/4 of what large ones reach. */
double check_gpu_slow_fraction(const struct hardware *h);
/* Peak FLOP/s and memory bandwidth of the CPU; takes about a second. */
void check_speed(struct findings *f);
/* The file system of a folder: kind, free space, and a durable write. */
void check_folder(struct findings *f, const char *path);

/* A kind of file system, by the magic number of statfs(2). */
struct filesystem {
    uint32_t magic;
    const char *name;
    const char *advice; /* why not to run there or save checkpoints there; NULL: suitable */
};
/* NULL: an unknown kind. */
const struct filesystem *check_find_filesystem(uint32_t magic);
