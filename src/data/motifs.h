/* motifs.h -- spike counts as motifs: one token ID per patch of neighboring neurons (usually one)
 * and consecutive bins, as in gpt-neuro-arch's tokenizer.
 *
 * File     A pickle of {"index_map": {bytes of a patch, neuron by neuron: ID}, "patch_size":
 *          (neurons, bins), "k_limit": k} with IDs 0..k; 0 is the silent patch, and k + 1 is the
 *          separator token that begins each time step.
 * Order    A session is encoded with `width` neurons: one with fewer repeats them cyclically, from
 *          one with more a contiguous block is drawn.  Each time step is the separator and then
 *          one ID per patch.  The last patches are padded with zeros.  A patch that the file does
 *          not contain becomes ID 0.
 * Memory   The map is immutable and may be shared by threads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

struct motifs;

/* MISSING, IO; DATA: malformed pickle, dictionary, patch or ID (the message says which). */
enum status motifs_open(struct motifs **out, const char *path);
/* The same from the bytes of a file. */
enum status motifs_parse(struct motifs **out, const unsigned char *bytes, size_t len,
                         const char *name);
void motifs_close(struct motifs *m);

int32_t motifs_separator(const struct motifs *m); /* token that begins a time step */
uint32_t motifs_checksum(const struct motifs *m); /* of the file's content */

/* The first of `width` neurons that are drawn from a session; 0 if it has no more than that. */
uint64_t motifs_first_neuron(size_t neurons, size_t width, uint64_t session);

struct motif_session {
    const unsigned char *counts; /* [neurons][bins] */
    size_t neurons, bins;        /* at least 1 each */
    size_t width;                /* neurons to encode */
    uint64_t number;             /* of the session; selects the block of neurons */
};
size_t motifs_length(const struct motifs *m, const struct motif_session *s); /* IDs */
/* Appends the session's IDs as int32_t. */
void motifs_encode(const struct motifs *m, const struct motif_session *s, struct text *out);
