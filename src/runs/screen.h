/* screen.h -- a grid of characters, as a terminal shows it, and the escape sequences that turn one
 * grid into another.
 *
 * Text is printable UTF-8 (printable.h); what does not fit into a row is cut.  A wide character
 * takes two cells; one that combines with the character before is left out. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum screen_style {
    STYLE_plain,
    STYLE_bold,
    STYLE_dim,
    STYLE_reverse,
    STYLE_red,
    STYLE_green,
    STYLE_yellow,
    STYLE_blue,
    STYLE_magenta,
    STYLE_cyan,
    NUM_STYLES
};

struct screen_cell {
    char glyph[5]; /* "": the right half of a wide character */
    uint8_t style; /* enum screen_style */
};

struct screen {
    int rows, columns;
    struct screen_cell *cells; /* owned */
};

/* All spaces. */
void screen_init(struct screen *s, int rows, int columns);
void screen_release(struct screen *s);

struct screen_place {
    int row, column; /* from 0 */
};
/* Writes text; returns the column after it.  A place outside the screen shows nothing. */
int screen_put(struct screen *s, struct screen_place at, enum screen_style style,
               const char *string);
/* Writes lines, each from the place's column on, with the colors that chart_terminal uses. */
void screen_put_chart(struct screen *s, struct screen_place at, const char *lines);

/* The rows as lines without trailing spaces; with escape sequences if `color`. */
void screen_text(const struct screen *s, bool color, struct text *out);
/* The escape sequences that change a terminal which shows `before` (NULL: anything) into `s`: only
 * changed cells are written. */
void screen_update(const struct screen *s, const struct screen *before, bool color,
                   struct text *out);
