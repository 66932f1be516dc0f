/* task.h -- an evaluation task: the questions of a data set as token IDs, each with one request per
 * choice.  A request is a context and a continuation, whose log-likelihood the model computes.
 *
 * Tokens   As in lm-evaluation-harness with its hf backend: white space at the end of the context
 *          moves to the continuation; the two are encoded together, and if the context alone has n
 *          tokens, the continuation begins after token n.  BOS comes first if the tokenizer adds
 *          it.  An empty context becomes BOS, or EOS if the tokenizer has no BOS.  A request that
 *          is too long loses its beginning.
 * Source   EleutherAI/lm-evaluation-harness at 4e7e0d47, lm_eval/api/model.py and
 *          lm_eval/models/huggingface.py. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tasks/task_format.h"
#include "tokenizer/tokenizer.h"

struct task_options {
    const char *name, *path;          /* of the data set; a local path */
    const struct task_format *format; /* NULL: detect it from the columns of the first row */
    int64_t limit;                    /* read at most this many rows; 0: all */
    int max_tokens;                   /* of a row of the model */
    bool masked; /* a masked model, whose rows hold the whole request; a causal model's rows lack
                    its last token, of which only the logits are used */
};

struct task_request {
    size_t first;            /* of its IDs, in ids */
    int num_ids, num_scored; /* the last num_scored IDs are the continuation */
};

struct task_item {
    size_t first_request;
    int num_choices, gold;
};

struct task {
    char *name; /* owned, as all arrays */
    const struct task_format *format;
    struct token_list ids; /* of all requests */
    struct task_request *requests;
    int64_t *lengths; /* characters of each request's answer, for acc_norm */
    struct task_item *items;
    size_t num_requests, num_items;
    size_t num_truncated; /* requests that lost their beginning */
    bool masked;
};

/* DATA: a row is malformed, or a continuation has no token or exceeds max_tokens.  CONFIG: no
 * tokenizer (NULL), or the columns are of no known format.  MISSING, IO: the file. */
enum status task_open(struct task *t, const struct task_options *o, const struct tokenizer *tok);
void task_close(struct task *t);

/* Tokens of the row that scores the request. */
static inline int task_row_tokens(const struct task *t, const struct task_request *r)
{
    return r->num_ids - !t->masked;
}
