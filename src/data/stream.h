/* stream.h -- one virtual stream: draws documents of the mixture, shuffles them in windows and
 * packs them into rows of tokens, end to end or best-fit (packing.h).
 *
 * Order    Draw n picks source i with probability weight i / sum, by (seed, RNG_SOURCE, stream, n).
 *          In each source the stream reads its own partition in windows of K documents.  The
 *          order within a window is a function of (seed, stream, source, epoch, window); after
 *          the last window the next epoch begins.
 *          best_fit: the rows of a group of documents come in an order that is a function of
 *          (seed, stream, n), with n the group's first draw.
 * Resume   The integers of stream_save are the whole state: a restored stream finds its windows
 *          again and re-reads the document, or the group of documents, it was in.  Unless documents
 *          are packed best-fit, weights, row length and the set of sources may differ then: each
 *          source continues where it was. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/packing.h"
#include "data/source.h"
#include "data/token_spans.h"

/* The documents of one source that belong to one stream. */
struct partition {
    struct source_range range;
    uint64_t epoch, window_begin;
    uint64_t used; /* documents drawn from the window */
    /* Derived from these: */
    struct source_reader reader;
    struct source_document *window; /* in file order */
    uint32_t *order;                /* the shuffle */
    uint64_t count, after;          /* documents in the window; the position after it */
    bool loaded;
    uint64_t empty_epochs; /* since a document had tokens */
};

/* The numbers by which random numbers know a source: those of when the run began to read it, so
 * that they stay as other sources come and go. */
struct source_identity {
    uint64_t place, count; /* of the sources then; one that came later: a hash of its name, and 1 */
};

struct stream_rules {
    const struct source *sources;
    const struct source_identity *identities; /* of the sources; borrowed */
    size_t num_sources;
    uint64_t seed, num_streams;
    uint64_t window;         /* documents */
    double validation_share; /* fraction of the documents that is held out */
    bool held_out;           /* read these instead of the others */
    bool once;               /* one pass over the sources in turn, without shuffling */
    bool overlap;            /* the last token of a row begins the next row; best_fit: of a piece */
    bool best_fit;           /* cut only documents longer than a row; not with `once` */
};

struct stream {
    const struct stream_rules *rules; /* borrowed */
    uint64_t number;
    int64_t rows, draws, source;
    int64_t offset;               /* in the current document; best_fit: rows read of the group */
    int64_t carry;                /* overlapping token between rows, -1: none */
    bool ended;                   /* once: the sources are exhausted */
    struct partition *partitions; /* one per source */
    struct token_list tokens;     /* of the current document; best_fit: of the group's documents */
    bool needs_reread;            /* `tokens` must be read again after a restore */
    /* best_fit: */
    struct packing group;
    int64_t *group_start; /* stream_save where the group begins */
    bool has_changed;     /* the group may have other rows than when it was saved */
};

/* The integers of a saved stream: its own, then those of each source. */
enum stream_int {
    STREAM_ROWS,
    STREAM_DRAWS,
    STREAM_SOURCE,
    STREAM_OFFSET,
    STREAM_CARRY,
    STREAM_INTS
};
enum partition_int { PARTITION_EPOCH, PARTITION_WINDOW, PARTITION_USED, PARTITION_INTS };

void stream_init(struct stream *s, const struct stream_rules *rules, uint64_t number);
void stream_release(struct stream *s);

/* *can: with `streams` streams, each has a document of the source that the rules let it read. */
enum status stream_can_partition(const struct stream_rules *rules, size_t source, uint64_t streams,
                                 bool *can);

/* TOKEN_BEGINS: the first token of a document.  TOKEN_SKIPPED: it replaces a token of a bad record,
 * and has no part in the loss.  TOKEN_PIECE: the first token of a piece (packing.h), of a document
 * that the token before it does not belong to. */
enum { TOKEN_BEGINS = 1, TOKEN_SKIPPED = 2, TOKEN_PIECE = 4 };

/* The tokens of a row; the caller owns the arrays of `need` elements. */
struct token_row {
    int need;
    int32_t *ids;
    unsigned char *begins;     /* the flags TOKEN_... of each token */
    int filled;                /* result: less than `need` only with best_fit, which pads rows, and
                                  at the end of a single pass */
    struct token_spans *spans; /* result: where the tokens come from; NULL: not needed */
};
/* Reads the next row; best_fit: of as many tokens as the one before.  DATA: a damaged file, or a
 * partition with empty documents only.  RECORD: a bad record, unless t->bad is set: then the stream
 * skips it like an empty document, and counts and lists it in the first epoch. */
enum status stream_row(struct stream *s, struct source_tokens *t, struct token_row *row);

/* The cursor: STREAM_INTS + PARTITION_INTS * sources integers. */
void stream_save(const struct stream *s, int64_t *ints);
/* How the sources of a saved position became those of the stream. */
struct stream_sources {
    const size_t *saved; /* place of each source among the saved ones; SIZE_MAX: it is new */
    size_t num_saved;
    bool drops_documents; /* the documents being read have other tokens now: leave out the rest */
};
/* `ints` are those of the saved sources; from NULL: they are the same.  DATA: stream_save cannot
 * have written these. */
enum status stream_load(struct stream *s, const int64_t *ints, const struct stream_sources *from);
