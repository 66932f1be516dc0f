/* line_editor.h -- a line that is typed on a terminal in raw mode: keys in, the edited line and
 * what to draw out.
 *
 * Keys     Left, Right, Ctrl-B, Ctrl-F: a character; Home, End, Ctrl-A, Ctrl-E: the ends;
 *          Backspace, Delete; Ctrl-U, Ctrl-K: to the beginning, to the end; Ctrl-W: a word; Up,
 *          Down: earlier lines.  Others are inserted, as UTF-8.
 * Memory   Lines of up to LINE_EDITOR_BYTES; the last LINE_EDITOR_LINES lines are kept. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stddef.h>

enum { LINE_EDITOR_BYTES = 1 << 16, LINE_EDITOR_LINES = 100 };

enum line_event {
    LINE_more,      /* the line may have changed: draw it */
    LINE_done,      /* Enter */
    LINE_end,       /* Ctrl-D in an empty line */
    LINE_interrupt, /* Ctrl-C */
    LINE_suspend,   /* Ctrl-Z */
};

/* Initialize with { 0 }. */
struct line_editor {
    struct text line;
    size_t cursor; /* a byte of the line */
    char *earlier[LINE_EDITOR_LINES];
    size_t num_earlier, shown; /* num_earlier - shown: how far Up went back */
    char *latest;              /* the line that is being typed while an earlier one is shown */
    unsigned char sequence[8]; /* the beginning of an escape sequence or of a character */
    size_t num_bytes;
};

/* Takes a byte of the terminal's. */
enum line_event line_editor_feed(struct line_editor *e, unsigned char byte);
/* Forgets a lone Escape, when no byte follows it. */
void line_editor_flush(struct line_editor *e);
/* Adds the line to the earlier ones, and begins an empty one. */
void line_editor_next(struct line_editor *e);
/* Appends what draws the prompt and the line in one row of `columns` columns: the part around the
 * cursor, if the line is longer. */
void line_editor_draw(const struct line_editor *e, const char *prompt, int columns,
                      struct text *out);
void line_editor_release(struct line_editor *e);
