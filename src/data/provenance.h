/* provenance.h -- which data a saved position belongs to: the version of every file, the options
 * that select documents, and the tokenizer.
 *
 * Resume   Positions are numbers: in other data they point to other documents, and another
 *          tokenizer gives the model other tokens.  So a difference is refused, unless the user
 *          names the file: data.accept_changed, prepare --accept-changed. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "data/source.h"

struct provenance {
    const struct source *sources; /* open; borrowed, as is the tokenizer */
    size_t num_sources;
    const struct tokenizer *tokenizer; /* NULL: all sources hold IDs */
    size_t reader, num_readers;        /* this data-parallel reader samples every nth file */
    struct file_versions *versions;    /* of each source's files; owned.  NULL: not sampled; then
                                          names and sizes of files count */
    bool is_gathered;
};

/* Samples this reader's share of the files.  MISSING, IO, DATA: as file_sample_hash. */
enum status provenance_sample(struct provenance *p);
void provenance_release(struct provenance *p);
/* Whether an item of `accepted` is the tokenizer, or names files of the sources. */
bool provenance_has(const struct provenance *p, const char *item);
/* Completes the samples before they are written: collective over `readers`, in which rank r is
 * reader r.  COMM: a rank failed. */
enum status provenance_gather(struct provenance *p, const struct comm *readers);

/* Writes it as members of the object that is open. */
void provenance_write(const struct provenance *p, struct json_writer *w);

struct provenance_rules {
    const struct option_list *accepted; /* files, patterns or "tokenizer" */
    bool is_fixed;                      /* sources may not be added, removed or reordered */
    bool is_quiet;                      /* do not log what was accepted */
    /* For messages: what has the position, how to accept changes, and how to restart. */
    const char *saved_in, *accept_begin, *accept_next, *accept_end, *restart;
    const char *rename; /* how a source with other files becomes a new one; NULL: it cannot */
};
/* Which of the saved sources a source is. */
struct provenance_match {
    bool is_new;     /* none of them */
    bool is_changed; /* it has changes that were accepted */
    size_t saved;    /* index */
};
/* Compares with what provenance_write wrote; each reader the files that it sampled, and all files
 * if those differ or changes may be accepted.  A source is found again by its name, by its files,
 * or without either by its place.  CONFIG: a difference that was not accepted; the message names
 * the files.  DATA: the saved one is damaged. */
enum status provenance_check(struct provenance *p, const struct json *saved,
                             const struct provenance_rules *rules,
                             struct provenance_match *matches);
