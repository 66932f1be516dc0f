/* pickle_text.h -- opcodes of a pickle being written, protocol 2, without a memo.
 *
 * Between pickle_put_begin and pickle_put_end they work on a stack as pickle.h's machine does. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

void pickle_put_begin(struct text *t);
void pickle_put_end(struct text *t);

void pickle_put_none(struct text *t);
void pickle_put_bool(struct text *t, bool value);
void pickle_put_integer(struct text *t, int64_t value);
void pickle_put_real(struct text *t, double value);
void pickle_put_text(struct text *t, const char *text);
void pickle_put_class(struct text *t, const char *module, const char *name);
void pickle_put_empty(struct text *t); /* tuple */
void pickle_put_dict(struct text *t);  /* empty */
void pickle_put_list(struct text *t);  /* empty */
void pickle_put_mark(struct text *t);
/* A tuple of so many whole numbers. */
void pickle_put_integers(struct text *t, const int64_t *values, int count);

void pickle_put_tuple(struct text *t);      /* of what is above the mark */
void pickle_put_items(struct text *t);      /* keys and values above the mark, into a dictionary */
void pickle_put_appends(struct text *t);    /* what is above the mark, into a list */
void pickle_put_call(struct text *t);       /* a class, with a tuple */
void pickle_put_new(struct text *t);        /* an object of a class, with a tuple */
void pickle_put_build(struct text *t);      /* an object's state */
void pickle_put_persistent(struct text *t); /* what a tuple names */
