/* toml_lexer.h -- where the TOML parser is in its text, and the values that lie within a line; for
 * toml.c only. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "base/toml.h"

struct toml_lexer {
    const char *at, *end, *line_start;
    const char *name; /* of the file; borrowed */
    int line;
};

/* Always fails, with the place. */
enum status toml_wrong(const struct toml_lexer *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static inline int toml_peek(const struct toml_lexer *l, size_t ahead)
{
    return (size_t)(l->end - l->at) > ahead ? (unsigned char)l->at[ahead] : -1;
}
static inline int toml_column(const struct toml_lexer *l)
{
    return (int)(l->at - l->line_start) + 1;
}

void toml_skip_blanks(struct toml_lexer *l); /* spaces and tabs */
/* A comment, if one is here, and the end of the line; fails where something else is. */
enum status toml_end_line(struct toml_lexer *l);
/* Blanks, newlines and comments, as between the items of an array. */
enum status toml_skip_lines(struct toml_lexer *l);

/* A quoted string of any of the four kinds (multi-line ones only where `lines`). */
enum status toml_read_string(struct toml_lexer *l, bool lines, struct text *out);
/* A number, date, time or boolean. */
enum status toml_read_scalar(struct toml_lexer *l, struct toml *value);
