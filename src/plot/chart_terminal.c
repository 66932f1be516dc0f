// SPDX-License-Identifier: Apache-2.0
#include "plot/chart.h"

#include "base/status.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One Braille character: two columns and four rows of dots. */
struct braille_cell {
    uint8_t dots; /* the character is U+2800 + dots */
    bool mark;
    int color;
};

struct braille_canvas {
    int columns, rows; /* of cells */
    struct braille_cell *cells;
};

static const char *const ansi_colors[] = {"\033[34m", "\033[33m", "\033[32m",
                                          "\033[35m", "\033[36m", "\033[31m"};
enum { NUM_COLORS = sizeof ansi_colors / sizeof *ansi_colors };

static struct braille_cell *cell_of(const struct braille_canvas *v, int x, int y)
{
    return &v->cells[y / 4 * v->columns + x / 2];
}

static void set_dot(const struct braille_canvas *v, int x, int y, int color)
{
    static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    struct braille_cell *cell = cell_of(v, x, y);
    cell->dots |= bits[y % 4][x % 2];
    cell->color = color;
}

struct dot_position {
    int x, y;
};

/* Bresenham's line algorithm. */
static void draw_segment(const struct braille_canvas *v, struct dot_position at,
                         struct dot_position to, int color)
{
    int dx = abs(to.x - at.x), dy = -abs(to.y - at.y);
    int step_x = at.x < to.x ? 1 : -1, step_y = at.y < to.y ? 1 : -1;
    for (int error = dx + dy;;) {
        set_dot(v, at.x, at.y, color);
        if (at.x == to.x && at.y == to.y) return;
        int twice = 2 * error;
        if (twice >= dy) error += dy, at.x += step_x;
        if (twice <= dx) error += dx, at.y += step_y;
    }
}

static void draw_line(const struct braille_canvas *v, const struct chart_line *l,
                      const struct axis *x, const struct axis *y)
{
    struct dot_position before = {0, 0};
    for (size_t i = 0; i < l->count; i++) {
        struct dot_position at = {
            (int)lround(axis_position(x, l->x[i]) * (2 * v->columns - 1)),
            (int)lround((1 - axis_position(y, l->y[i])) * (4 * v->rows - 1)),
        };
        if (l->marks)
            *cell_of(v, at.x, at.y) = (struct braille_cell){.mark = true, .color = l->color};
        else
            draw_segment(v, i ? before : at, at, l->color);
        before = at;
    }
}

static void append_painted(struct text *out, const char *what, int color, bool paint)
{
    if (paint) text_adds(out, ansi_colors[color % NUM_COLORS]);
    text_adds(out, what);
    if (paint) text_adds(out, "\033[0m");
}

/* A Unicode character, or what stands for it in ASCII. */
static const char *glyph_of(const struct chart *c, const char *unicode, const char *ascii)
{
    return c->ascii ? ascii : unicode;
}

static void append_cell(struct text *out, const struct chart *c, const struct braille_cell *cell,
                        bool paint)
{
    enum { UPPER = 0x1b, LOWER = 0xe4 }; /* rows of dots */
    if (cell->mark) {
        append_painted(out, glyph_of(c, "\u25cf", "o"), cell->color, paint);
    } else if (cell->dots && c->ascii) {
        const char *point = !(cell->dots & LOWER) ? "'" : cell->dots & UPPER ? ":" : ".";
        append_painted(out, point, cell->color, paint);
    } else if (cell->dots) {
        /* U+2800 + dots in UTF-8 */
        char glyph[4] = {(char)0xE2, (char)(0xA0 | cell->dots >> 6),
                         (char)(0x80 | (cell->dots & 63)), 0};
        append_painted(out, glyph, cell->color, paint);
    } else {
        text_adds(out, " ");
    }
}

/* Draws each tick and its label, unless it would overlap the previous label. */
static void append_x_axis(struct text *out, const struct chart *c, const struct axis *x, int margin,
                          int columns)
{
    char *ticks = heap((size_t)columns + 1), *labels = heap((size_t)c->width + AXIS_LABEL);
    memset(ticks, '-', (size_t)columns);
    memset(labels, ' ', (size_t)c->width);
    int used = 0;
    for (int i = 0; i < x->num_ticks; i++) {
        char label[AXIS_LABEL];
        axis_label(x, x->ticks[i], label);
        int len = (int)strlen(label);
        int column = (int)lround(axis_position(x, x->ticks[i]) * (columns - 1));
        int from = margin + 1 + column - len / 2;
        if (from + len > c->width) from = c->width - len;
        if (from < used) continue;
        memcpy(labels + from, label, (size_t)len);
        ticks[column] = '+';
        used = from + len + 1;
    }
    text_addf(out, "%*s%s", margin, "", glyph_of(c, "\u2514", "+"));
    for (int i = 0; i < columns; i++)
        text_adds(out, ticks[i] == '+' ? glyph_of(c, "\u252c", "+") : glyph_of(c, "\u2500", "-"));
    int end = used > 0 ? used - 1 : 0;
    text_addf(out, "\n%.*s", end, labels);
    if (end + 1 + (int)strlen(c->x_label) <= c->width) text_addf(out, " %s", c->x_label);
    text_adds(out, "\n");
    free(ticks);
    free(labels);
}

static size_t count_characters(const char *string)
{
    size_t n = 0;
    for (; *string; string++) n += ((unsigned char)*string & 0xC0) != 0x80;
    return n;
}

/* Names and last values, wrapped to the width. */
static void append_legend(struct text *out, const struct chart *c, int margin, bool paint)
{
    size_t used = 0, available = (size_t)(c->width - margin - 1);
    for (int i = 0; i < c->num_lines; i++) {
        const struct chart_line *l = &c->lines[i];
        char last[32];
        snprintf(last, sizeof last, "%.5g", l->count ? l->y[l->count - 1] : 0);
        size_t width = count_characters(l->name) + strlen(last) + 4; /* marker and two spaces */
        bool starts_row = !used || used + 3 + width > available;
        if (starts_row && used) text_adds(out, "\n");
        text_addf(out, "%*s", starts_row ? margin + 1 : 3, "");
        used = starts_row ? width : used + 3 + width;
        append_painted(out,
                       l->marks ? glyph_of(c, " \u25cf", " o") : glyph_of(c, "\u28e4\u28e4", ".."),
                       l->color, paint);
        text_addf(out, " %s %s", l->name, last);
    }
    text_adds(out, "\n");
}

void chart_terminal(const struct chart *c, bool color, struct text *out)
{
    struct axis x, y;
    int rows = c->height - 4 - (c->title ? 1 : 0), margin = 0;
    BUG_IF(c->width < 30 || c->height < 8);
    chart_axes(c, c->width < 176 ? c->width / 16 + 1 : 12, rows / 3 < 12 ? rows / 3 : 12, &x, &y);
    char labels[AXIS_TICKS][AXIS_LABEL];
    for (int i = 0; i < y.num_ticks; i++) {
        axis_label(&y, y.ticks[i], labels[i]);
        if ((int)strlen(labels[i]) > margin) margin = (int)strlen(labels[i]);
    }
    struct braille_canvas v = {.columns = c->width - margin - 1, .rows = rows};
    v.cells = heap((size_t)v.columns * (size_t)v.rows * sizeof *v.cells);
    for (int pass = 0; pass < 2; pass++) /* draw markers last, so that lines do not cover them */
        for (int i = 0; i < c->num_lines; i++)
            if (c->lines[i].marks == pass) draw_line(&v, &c->lines[i], &x, &y);
    if (c->title) text_addf(out, "%*s %s\n", margin, "", c->title);
    text_addf(out, "%*s %s\n", margin, "", c->y_label);
    for (int row = 0; row < rows; row++) {
        const char *label = "";
        for (int i = 0; i < y.num_ticks; i++)
            if ((int)lround((1 - axis_position(&y, y.ticks[i])) * (rows - 1)) == row)
                label = labels[i];
        text_addf(out, "%*s%s", margin, label,
                  *label ? glyph_of(c, "\u2524", "+") : glyph_of(c, "\u2502", "|"));
        int end = v.columns;
        const struct braille_cell *cells = v.cells + row * v.columns;
        while (end && !cells[end - 1].dots && !cells[end - 1].mark) end--;
        for (int i = 0; i < end; i++) append_cell(out, c, &cells[i], color);
        text_adds(out, "\n");
    }
    append_x_axis(out, c, &x, margin, v.columns);
    append_legend(out, c, margin, color);
    free(v.cells);
}
