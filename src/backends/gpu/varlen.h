/* documents.h -- the documents of a batch, where they are runs of tokens in its rows.
 *
 * cuDNN takes a batch of rows of any length behind each other; that is what documents are, whatever
 * row they stand in.
 * Axes     B rows of T tokens, H heads; a token's number is that in the whole batch. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__cplusplus)
extern "C" {
#endif
#include "base/status.h"
#include "tensor/queue.h"

#include <stdint.h>

/* As an argument of a kernel it reaches the device with the launch, in no memory that the host has
 * to leave alone afterwards. */
enum { MOST_DOCUMENTS = 512 };
struct documents {
    int count;
    int32_t first[MOST_DOCUMENTS + 1]; /* token of each; behind the last: how many there are */
};

/* Where each begins in tensors of so many elements a token; lists on the device. */
enum { DOCUMENT_LISTS = 4 };
struct document_places {
    int rows;                       /* documents that there may be; those that are not are empty */
    int32_t *lengths;               /* [rows], tokens */
    int64_t *begin[DOCUMENT_LISTS]; /* [rows + 1], elements */
    int64_t elements[DOCUMENT_LISTS];
};

/* find     reads the bounds on the host.  False: they are more than `most`, or not those of runs
 *          that fill the rows.
 * place    fills the lists in.
 * by_head, by_token    [token, H] to [B, H, T], and back. */
#define DOCUMENTS_DOOR(prefix)                                                                     \
    bool prefix##_documents_find(const int32_t *start_BT, const int32_t *end_BT, int B, int T,     \
                                 int most, struct documents *out);                                 \
    enum status prefix##_documents_place(const struct documents *d,                                \
                                         const struct document_places *to, struct queue *on);      \
    enum status prefix##_by_head(const float *from_NH, float *to_BHT, int B, int T, int H,         \
                                 struct queue *on);                                                \
    enum status prefix##_by_token(const float *from_BHT, float *to_NH, int B, int T, int H,        \
                                  struct queue *on);
DOCUMENTS_DOOR(gpu)
DOCUMENTS_DOOR(gpu_emu32)
DOCUMENTS_DOOR(gpu_emu64)
#undef DOCUMENTS_DOOR
#if defined(__cplusplus)
}
#endif
