/* motifs.h -- spike counts as motifs: so many bins of one neuron are one id, as gpt-neuro-arch's
 * tokenizer has them.
 *
 * File     A pickle of {"index_map": {bytes of a patch: id}, "patch_size": (1, bins), "k_limit":
 *          k}, ids 0..k; 0 is the silent patch, and k + 1 begins the patches of a time.
 * Order    A session has always the same number of neurons: fewer are repeated in turn, of more a
 *          block of neighbours is drawn.  Time after time: the mark, then each neuron's id.  The
 *          last bins are filled up with zeros.  A patch that the file does not have is id 0.
 * Memory   The map is immutable: threads share it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

struct motifs;

/* MISSING, IO; DATA: what is wrong with the pickle, the dictionary, a patch or an id. */
enum status motifs_open(struct motifs **out, const char *path);
/* The same of a whole file's bytes, for motifs_open and the fuzzer. */
enum status motifs_parse(struct motifs **out, const unsigned char *bytes, size_t len,
                         const char *name);
void motifs_close(struct motifs *m);

int32_t motifs_mark(const struct motifs *m);
size_t motifs_bins(const struct motifs *m); /* of a patch */
/* Of the files' content. */
uint32_t motifs_checksum(const struct motifs *m);

struct motif_session {
    const unsigned char *counts; /* [neurons][bins] */
    size_t neurons, bins;        /* at least one of each */
    size_t width;                /* neurons of every session */
    uint64_t number;             /* of the session: which block of neurons is a function of it */
};
size_t motifs_length(const struct motifs *m, const struct motif_session *s); /* ids */
/* Appends them as int32_t. */
void motifs_encode(const struct motifs *m, const struct motif_session *s, struct text *out);
