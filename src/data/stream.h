/* stream.h -- one virtual stream: documents of the mixture, shuffled in windows, as rows of tokens.
 *
 * Order    Draw n takes source i with probability weight i / sum, by (seed, RNG_SOURCE, stream, n).
 *          Each source of a stream goes through its share in windows of K documents, each window in
 *          an order that is a function of (seed, stream, source, epoch, window); after the last one
 *          the next epoch begins.
 * Resume   stream_save's integers say it all: a restored stream finds its windows again and
 *          re-reads the document it was in. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/source.h"

struct share {
    uint64_t begin, end;       /* places; packed: 0 and no end */
    uint64_t epoch, window_at; /* the window begins there */
    uint64_t used;             /* documents of the window that were drawn */
    /* what follows from these */
    struct source_reader reader;
    struct found *window;  /* in reading order */
    uint32_t *order;       /* the shuffle */
    uint64_t count, after; /* documents in it; the place behind it */
    bool loaded;
    uint64_t fruitless; /* epochs ended since a document had tokens */
};

struct stream_rules {
    const struct source *sources;
    size_t num_sources;
    uint64_t seed, num_streams;
    uint64_t window;         /* documents */
    double validation_share; /* of the documents is held out */
    bool held_out;           /* read these instead of the others */
    bool once;               /* sources in turn, one pass, no shuffling */
    bool overlap;            /* the last token of a row begins the next */
};

struct stream {
    const struct stream_rules *rules; /* borrowed */
    uint64_t number;
    int64_t rows, draws, source, offset, carry; /* carry -1: none */
    bool ended;                                 /* once: nothing is left */
    struct share *shares;
    struct token_list tokens; /* of the document under way */
    bool restored;            /* tokens are still to be read again */
};

enum { STREAM_INTS = 5, SHARE_INTS = 3 };

void stream_init(struct stream *s, const struct stream_rules *rules, uint64_t number);
void stream_release(struct stream *s);

/* Has each of so many streams a document of the source that the rules let it read? */
enum status stream_can_share(const struct stream_rules *rules, size_t source, uint64_t streams,
                             bool *can);

/* The next `need` tokens.  begins[i] is set where token i begins a document.  *filled is less than
 * `need` only at the end of a single pass.  DATA: a damaged document, or all of a share are empty.
 */
enum status stream_row(struct stream *s, struct source_tokens *t, int need, int32_t *ids,
                       unsigned char *begins, int *filled);

/* STREAM_INTS + SHARE_INTS * sources integers. */
void stream_save(const struct stream *s, int64_t *ints);
/* DATA: they cannot be what stream_save gave. */
enum status stream_load(struct stream *s, const int64_t *ints);
