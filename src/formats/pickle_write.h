/* pickle_write.h -- emits the opcodes of a pickle, protocol 2, without a memo.
 *
 * Each function appends the opcodes named after it; pickletools.py documents their effect on the
 * stack. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

void pickle_write_proto(struct text *t);
void pickle_write_stop(struct text *t);

void pickle_write_none(struct text *t);
void pickle_write_bool(struct text *t, bool value);
void pickle_write_int(struct text *t, int64_t value);
void pickle_write_float(struct text *t, double value);
void pickle_write_string(struct text *t, const char *text);
/* A bytes object, as Python writes it in protocol 2: _codecs.encode of a string, with latin1. */
void pickle_write_bytes(struct text *t, const void *bytes, size_t len);
void pickle_write_global(struct text *t, const char *module, const char *name);
void pickle_write_empty_tuple(struct text *t);
void pickle_write_empty_dict(struct text *t); /* EMPTY_DICT */
void pickle_write_empty_list(struct text *t); /* EMPTY_LIST */
void pickle_write_mark(struct text *t);
/* A whole tuple of integers. */
void pickle_write_int_tuple(struct text *t, const int64_t *values, int count);

void pickle_write_tuple(struct text *t);    /* of the items above the mark */
void pickle_write_setitems(struct text *t); /* adds the keys and values above the mark to a dict */
void pickle_write_appends(struct text *t);  /* appends the items above the mark to a list */
void pickle_write_reduce(struct text *t);   /* calls a global with a tuple */
void pickle_write_newobj(struct text *t);   /* makes an instance of a class with a tuple */
void pickle_write_build(struct text *t);    /* sets an object's state */
void pickle_write_persid(struct text *t);   /* makes the tuple on top a persistent ID */
