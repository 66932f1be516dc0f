/* prepare.h -- sources of text, or of token ids, into one pair of token files, PREFIX.bin and
 * PREFIX.idx, by all cores.
 *
 * Order    Documents in the order of the sources, their files and lines, whatever the threads do.
 *          A document of the index is one that training would have read from the text: same ids.
 *          Empty ones are left out.
 *          Ids go in as they are, if the tokenizer has them.
 * Threads  Each reads what it encodes: pages of a .parquet file, batches of an .arrow file.  Only
 *          a compressed file is read by one thread, for all the others.
 * Memory   The ids of three batches of 4 MiB of text a thread; of compressed files their text, too.
 * Resume   PREFIX.prepare.json says up to where PREFIX.bin.part and PREFIX.idx.part are whole; the
 *          same request goes on from there, and gives the same bytes.  PREFIX.idx appears last. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/data_config.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct prepared {
    uint64_t documents, tokens;
    uint64_t text_bytes, text_total; /* read, of how many; total 0: unknown (compressed, rows); an
                                        id counts as 4 */
    uint64_t text_resumed;           /* of text_bytes, read by an earlier run */
    int token_bytes;                 /* 2 where the vocabulary has less than 65,500 ids, else 4 */
};

struct prepare {
    const struct source_config *sources;
    size_t num_sources;
    const struct tokenizer *tokenizer;
    const char *prefix;
    bool bos, eos;
    bool force;  /* replace what is there, and start anew */
    int threads; /* 0: all */
    void (*progress)(void *context, const struct prepared *so_far); /* after each batch; or NULL */
    void *context;
};

/* CONFIG: the output is there, or another process writes it.  DATA: which document is damaged,
 * or holds an id that the tokenizer does not have.  IO. */
enum status prepare(const struct prepare *p, struct prepared *done);
