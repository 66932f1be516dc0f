/* queue.h (cpu) -- what stands behind a struct queue on the CPU; for this backend's files only. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/queue.h"

struct products; /* oneDNN's compiled products, see product.c */

struct cpu_queue {
    struct queue base; /* first: a struct queue * of this backend points here */
    struct products *products;
    struct tuner *tuner; /* NULL: products go the usual way */
};

enum status products_open(struct products **out);
void products_close(struct products *p);
