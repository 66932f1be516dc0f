/* pickle_text.h -- emits the opcodes of a pickle, protocol 2, without a memo.
 *
 * Each function appends the opcodes named after it; pickletools.py documents their effect on the
 * stack. */
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
void pickle_put_empty(struct text *t);
void pickle_put_dict(struct text *t); /* EMPTY_DICT */
void pickle_put_list(struct text *t); /* EMPTY_LIST */
void pickle_put_mark(struct text *t);
/* A whole tuple of integers. */
void pickle_put_integers(struct text *t, const int64_t *values, int count);

void pickle_put_tuple(struct text *t);      /* of the items above the mark */
void pickle_put_items(struct text *t);      /* adds the keys and values above the mark to a dict */
void pickle_put_appends(struct text *t);    /* appends the items above the mark to a list */
void pickle_put_call(struct text *t);       /* calls a global with a tuple */
void pickle_put_new(struct text *t);        /* makes an instance of a class with a tuple */
void pickle_put_build(struct text *t);      /* sets an object's state */
void pickle_put_persistent(struct text *t); /* makes the tuple on top a persistent ID */
