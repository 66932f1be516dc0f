// SPDX-License-Identifier: Apache-2.0
#include "runs/screen.h"

#include "runs/printable.h"

#include <stdlib.h>
#include <string.h>

static const char *const sequences[NUM_STYLES] = {
    [STYLE_plain] = "\033[0m",     [STYLE_bold] = "\033[0;1m",  [STYLE_dim] = "\033[0;2m",
    [STYLE_reverse] = "\033[0;7m", [STYLE_red] = "\033[0;31m",  [STYLE_green] = "\033[0;32m",
    [STYLE_yellow] = "\033[0;33m", [STYLE_blue] = "\033[0;34m", [STYLE_magenta] = "\033[0;35m",
    [STYLE_cyan] = "\033[0;36m"};

/* The colors of SGR 31 to 36. */
static const enum screen_style chart_styles[] = {STYLE_red,  STYLE_green,   STYLE_yellow,
                                                 STYLE_blue, STYLE_magenta, STYLE_cyan};

void screen_init(struct screen *s, int rows, int columns)
{
    size_t count = (size_t)rows * (size_t)columns;
    *s = (struct screen){rows, columns, heap((count + 1) * sizeof *s->cells)};
    for (size_t i = 0; i < count; i++) s->cells[i].glyph[0] = ' ';
}

void screen_release(struct screen *s)
{
    free(s->cells);
    *s = (struct screen){0};
}

static struct screen_cell *row_of(const struct screen *s, int row)
{
    return s->cells + (size_t)row * (size_t)s->columns;
}

/* Writes one character; returns the column after it, or -1 if it does not fit. */
static int put_character(struct screen *s, struct screen_place at, enum screen_style style,
                         const char *from, size_t len)
{
    int width;
    printable_character(from, &width);
    if (at.column + width > s->columns) return -1;
    if (!width || len >= sizeof s->cells->glyph) return at.column;
    struct screen_cell *cell = row_of(s, at.row) + at.column;
    *cell = (struct screen_cell){.style = (uint8_t)style};
    memcpy(cell->glyph, from, len);
    if (width == 2) cell[1] = (struct screen_cell){.style = (uint8_t)style};
    return at.column + width;
}

int screen_put(struct screen *s, struct screen_place at, enum screen_style style,
               const char *string)
{
    if (at.row < 0 || at.row >= s->rows || at.column < 0) return at.column;
    while (*string) {
        int width;
        size_t len = printable_character(string, &width);
        int next = put_character(s, at, style, string, len);
        if (next < 0) break;
        at.column = next, string += len;
    }
    return at.column;
}

void screen_put_chart(struct screen *s, struct screen_place at, const char *lines)
{
    enum screen_style style = STYLE_plain;
    int first = at.column;
    while (*lines) {
        if (*lines == '\n') {
            at.row++, at.column = first, lines++;
        } else if (!strncmp(lines, "\033[", 2)) {
            long code = strtol(lines + 2, NULL, 10);
            style = code >= 31 && code <= 36 ? chart_styles[code - 31] : STYLE_plain;
            lines += strcspn(lines, "m");
            lines += *lines == 'm';
        } else {
            int width;
            size_t len = printable_character(lines, &width);
            char one[8] = {0};
            memcpy(one, lines, len);
            at.column = screen_put(s, at, style, one);
            lines += len;
        }
    }
}

static bool is_blank(const struct screen_cell *c)
{
    return c->glyph[0] == ' ' && !c->glyph[1] && c->style != STYLE_reverse;
}

void screen_text(const struct screen *s, bool color, struct text *out)
{
    for (int row = 0; row < s->rows; row++) {
        const struct screen_cell *cells = row_of(s, row);
        int end = s->columns, style = STYLE_plain;
        while (end && is_blank(&cells[end - 1])) end--;
        for (int i = 0; i < end; i++) {
            if (color && cells[i].style != style) text_adds(out, sequences[cells[i].style]);
            style = cells[i].style;
            text_adds(out, cells[i].glyph);
        }
        if (color && style != STYLE_plain) text_adds(out, sequences[STYLE_plain]);
        text_adds(out, "\n");
    }
}

void screen_update(const struct screen *s, const struct screen *before, bool color,
                   struct text *out)
{
    int style = -1;
    bool is_new = !before || before->rows != s->rows || before->columns != s->columns;
    if (is_new) text_adds(out, "\033[0m\033[2J");
    for (int row = 0; row < s->rows; row++) {
        const struct screen_cell *cells = row_of(s, row);
        const struct screen_cell *old = is_new ? NULL : row_of(before, row);
        int cursor = -1; /* its column, if it is in this row */
        for (int i = 0; i < s->columns; i++) {
            if (old ? !memcmp(&cells[i], &old[i], sizeof *cells) : is_blank(&cells[i])) continue;
            if (!cells[i].glyph[0]) continue; /* its left half is written, or has not changed */
            if (cursor != i) text_addf(out, "\033[%d;%dH", row + 1, i + 1);
            if (color && cells[i].style != style) text_adds(out, sequences[cells[i].style]);
            style = cells[i].style;
            text_adds(out, cells[i].glyph);
            cursor = i + 1;
            if (cursor < s->columns && !cells[cursor].glyph[0]) cursor++;
        }
    }
    if (color && style > STYLE_plain) text_adds(out, sequences[STYLE_plain]);
}
