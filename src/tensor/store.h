/* store.h -- storage of parameters or moments as f32, bf16, or split bf16 and low bits, which the
 * host reads and writes as f32.
 *
 * Memory   Device buffers are staged through host memory in chunks. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/dtype.h"
#include "tensor/queue.h"

struct store {
    void *x;
    uint16_t *low; /* NULL, or the low bits of split storage (split_half); x is then BF16 */
    enum dtype dtype;
    struct queue *queue; /* borrowed; owner of the device memory; NULL: host memory */
};

struct store store_f32(float *x, struct queue *queue);
/* The buffer itself if it is plain f32 in host memory, else NULL. */
float *store_host_f32(const struct store *s);

/* Elements [at, at + n).  Writing to BF16 rounds to nearest even. */
enum status store_read(const struct store *s, size_t at, size_t n, float *to);
enum status store_write(const struct store *s, size_t at, size_t n, const float *from);
/* Zeroes the first n elements. */
enum status store_zero(const struct store *s, size_t n);
/* Copies elements [at, at + period) again and again, up to at + n, without passing the host. */
enum status store_repeat(const struct store *s, size_t at, size_t period, size_t n);
