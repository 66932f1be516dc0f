/* store.h -- a flat buffer of numbers in whatever form it keeps them; the host reads and writes
 * f32.
 *
 * Memory   Buffers of a device go through a run of the host's. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/dtype.h"
#include "tensor/queue.h"

struct store {
    void *x;
    uint16_t *low; /* NULL; else x is BF16, and with these the numbers are exact (split_half) */
    enum dtype dtype;
    struct queue *on; /* whose memory it is; NULL: the host's */
};

struct store store_f32(float *x, struct queue *on);
/* Where the host has them as f32 already; NULL: it does not. */
float *store_plain(const struct store *s);

/* Numbers [at, at + n).  As BF16 they are rounded to nearest. */
enum status store_read(const struct store *s, size_t at, size_t n, float *to);
enum status store_write(const struct store *s, size_t at, size_t n, const float *from);
/* The first n. */
enum status store_zero(const struct store *s, size_t n);
