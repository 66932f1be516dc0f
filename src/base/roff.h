/* roff.h -- text as a man page's source, for groff's and mandoc's man(7) macros. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

/* Begins a page: .TH NAME SECTION, without a date, so that builds are reproducible. */
void roff_begin(struct text *out, const char *name, int section, const char *manual);
void roff_section(struct text *out, const char *title);
/* Appends one line's text, escaped; what stands in backquotes becomes bold. */
void roff_add(struct text *out, const char *string);
/* Appends paragraphs that blank lines separate.  One whose lines are indented or aligned keeps its
 * lines. */
void roff_paragraphs(struct text *out, const char *string);
/* Begins a list entry: a tag in bold, `value` after it in italics if not empty.  Its text follows
 * with roff_add. */
void roff_entry(struct text *out, const char *tag, const char *value);

/* Whether the lines of a paragraph of `len` bytes are indented or aligned in columns. */
bool roff_is_table(const char *paragraph, size_t len);
