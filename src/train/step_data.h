/* step_data.h -- the rows and documents of a step, past or future, found without training: from the
 * configuration and the data position in a checkpoint.
 *
 * Order    The newest checkpoint before the step says where the data were read up to, and the rows
 *          between it and the step are read past, through the stages of the data.  The first
 *          checkpoint after the step says which rows a rollback skipped; without one,
 *          metrics.jsonl does.
 * Ranks    On this rank alone, for a run of any number of ranks; downloads nothing. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "config/data_stages.h"
#include "data/loader.h"
#include "tokenizer/tokenizer.h"

struct step_data {
    struct mesh mesh;            /* of rank 0 */
    struct tokenizer *tokenizer; /* owned; may be NULL */
    struct source_config one;
    struct data_config data;
    struct loader *loader;
    struct row_split split;
    struct data_stage stage;   /* of the step */
    char *checkpoint;          /* that the rows follow from; owned; NULL: the start of the run */
    int64_t step, from_step;   /* of the checkpoint */
    struct row_ranges skipped; /* guard.skip_rows, from the checkpoint on; owned */
    uint64_t first_row, first_position; /* of the row after the checkpoint */
    uint64_t begin;                     /* position of the step's first row (row_split.h) */
    bool is_skipped;                    /* guard.skip_steps: it does not train on its rows */
    int64_t num_rows, num_read;         /* rows of the step, and those read so far */
};

/* A row of the step. */
struct step_row {
    uint64_t number;                /* in the run */
    int reader, place;              /* data-parallel rank, and the place in its batch */
    const struct token_row *tokens; /* with spans; valid until the next row is read */
};

/* The first intact checkpoint of the step or after it in a folder of checkpoints: it has the
 * config.toml of the step.  On the heap; NULL: none.  IO: the folder cannot be read. */
enum status step_data_find_checkpoint(const char *folder, int64_t step, char **found);
/* Opens the data at a step of a run of num_ranks ranks.  Close it also after a failure.
 * USAGE: the run has no such step.  CONFIG: the data or settings are not those of the checkpoint,
 * or steps on num_ranks ranks have other rows than those trained on.  Also the errors of
 * loader_open and loader_load. */
enum status step_data_open(struct step_data *s, const struct config *c, int num_ranks,
                           int64_t step);
void step_data_close(struct step_data *s);
/* Reads the next row; *none: all were read.  Errors: those of loader_next_tokens. */
enum status step_data_next(struct step_data *s, struct step_row *row, bool *none);
