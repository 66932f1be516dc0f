/* queue.h (cpu) -- the CPU backend's queue; for this backend's files only. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/queue.h"

struct onednn;
struct tuner;

struct cpu_queue {
    struct queue base; /* first: a struct queue * of this backend points here */
    struct onednn *onednn;
    struct tuner *tuner; /* NULL: GEMMs use the default blocking */
};
