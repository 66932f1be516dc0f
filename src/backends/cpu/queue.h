/* queue.h (cpu) -- what stands behind a struct queue on the CPU; for this backend's files only. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/queue.h"

struct onednn; /* oneDNN's compiled products, see product.c */

struct cpu_queue {
    struct queue base; /* first: a struct queue * of this backend points here */
    struct onednn *onednn;
    struct tuner *tuner; /* NULL: products go the usual way */
};

enum status onednn_open(struct onednn **out);
void onednn_close(struct onednn *p);
