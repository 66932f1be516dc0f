// SPDX-License-Identifier: Apache-2.0
#include "plot/chart.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Middle tones: each is clear of white and of a dark page. */
static const char *const palette[] = {"#2f81f7", "#e0792b", "#2da44e", "#a371f7",
                                      "#d4589c", "#1b9aaa", "#b08800", "#e5534b"};
enum { NUM_COLOURS = sizeof palette / sizeof *palette };
#define INK  "#6e7781"
#define RULE "#8b949e"

enum {
    EDGE = 14,
    LEFT = 62,
    RIGHT = 74,
    BOTTOM = 46,
    SMALL = 13,
    LARGE = 17,
    ROW = 22,
    SWATCH = 24
};

/* Where the curves are, in pixels, and the axes. */
struct frame {
    double left, top, width, height;
    struct axis x, y;
};

static double across(const struct frame *f, double x)
{
    return f->left + f->width * axis_place(&f->x, x);
}

static double down(const struct frame *f, double y)
{
    return f->top + f->height * (1 - axis_place(&f->y, y));
}

/* Text between tags; what XML or UTF-8 does not allow becomes a question mark. */
static void add_escaped(struct text *t, const char *string)
{
    bool valid = utf8_valid(string, strlen(string));
    for (const char *at = string; *at; at++) {
        unsigned char c = (unsigned char)*at;
        if (c == '<' || c == '>' || c == '&' || c == '"')
            text_addf(t, "&#%d;", c);
        else if (c < 0x20 || (c >= 0x80 && !valid))
            text_adds(t, "?");
        else
            text_add(t, at, 1);
    }
}

/* No font is at hand to measure with; sans-serif letters are about this wide. */
static double breadth(const char *string, int size)
{
    size_t letters = 0;
    for (const char *at = string; *at; at++) letters += ((unsigned char)*at & 0xC0) != 0x80;
    return 0.56 * size * (double)letters;
}

static void add_word(struct text *t, double x, double y, const char *anchor, const char *word)
{
    text_addf(t, "<text x=\"%.1f\" y=\"%.1f\"%s%s%s>", x, y, *anchor ? " text-anchor=\"" : "",
              anchor, *anchor ? "\"" : "");
    add_escaped(t, word);
    text_adds(t, "</text>\n");
}

static void add_grid(struct text *t, const struct frame *f)
{
    char label[AXIS_LABEL];
    double bottom = f->top + f->height, right = f->left + f->width;
    text_adds(t, "<g stroke=\"" RULE "\" stroke-opacity=\"0.28\">\n");
    for (int i = 0; i < f->y.num_ticks; i++)
        text_addf(t, "<path d=\"M%.1f %.1fH%.1f\"/>\n", f->left, down(f, f->y.ticks[i]), right);
    text_adds(t, "</g>\n<g stroke=\"" RULE "\">\n");
    text_addf(t, "<path d=\"M%.1f %.1fH%.1f\"/>\n", f->left, bottom, right);
    for (int i = 0; i < f->x.num_ticks; i++)
        text_addf(t, "<path d=\"M%.1f %.1fv5\"/>\n", across(f, f->x.ticks[i]), bottom);
    text_adds(t, "</g>\n");
    for (int i = 0; i < f->y.num_ticks; i++) {
        axis_label(&f->y, f->y.ticks[i], label);
        add_word(t, f->left - 9, down(f, f->y.ticks[i]) + 4.5, "end", label);
    }
    for (int i = 0; i < f->x.num_ticks; i++) {
        axis_label(&f->x, f->x.ticks[i], label);
        add_word(t, across(f, f->x.ticks[i]), bottom + 20, "middle", label);
    }
}

static void add_point(struct text *t, const struct frame *f, bool *first, double x, double y)
{
    text_addf(t, "%s%.1f %.1f", *first ? "M" : "L", across(f, x), down(f, y));
    *first = false;
}

/* Joined points.  Of many, only the least and the greatest of each pixel column are kept: the
 * picture is the same. */
static void add_curve(struct text *t, const struct frame *f, const double *xs, const double *ys,
                      size_t count, const char *style)
{
    size_t columns = (size_t)f->width, stride = count > 4 * columns ? count / columns : 1;
    bool first = true;
    text_adds(t, "<path d=\"");
    for (size_t i = 0; i < count; i += stride) {
        size_t end = i + stride < count ? i + stride : count, low = i, high = i;
        for (size_t j = i; j < end; j++) {
            if (ys[j] < ys[low]) low = j;
            if (ys[j] > ys[high]) high = j;
        }
        size_t one = low < high ? low : high, other = low < high ? high : low;
        add_point(t, f, &first, xs[one], ys[one]);
        if (other != one) add_point(t, f, &first, xs[other], ys[other]);
    }
    if (stride > 1) add_point(t, f, &first, xs[count - 1], ys[count - 1]);
    text_addf(t, "\" fill=\"none\" stroke-linejoin=\"round\" %s/>\n", style);
}

static void add_line(struct text *t, const struct frame *f, const struct chart_line *l)
{
    char style[128];
    const char *colour = palette[l->colour % NUM_COLOURS];
    if (!l->count) return;
    if (l->raw) {
        snprintf(style, sizeof style, "stroke=\"%s\" stroke-opacity=\"0.35\"", colour);
        add_curve(t, f, l->x, l->raw, l->count, style);
    }
    snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"%s\"", colour,
             l->marks ? "1.2\" stroke-dasharray=\"3 4" : "1.8");
    add_curve(t, f, l->x, l->y, l->count, style);
    for (size_t i = 0; l->marks && i < l->count; i++)
        text_addf(t, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\" fill=\"%s\"/>\n",
                  across(f, l->x[i]), down(f, l->y[i]), colour);
}

/* Four digits, zeros at the end included, where that reads well. */
static void write_value(double value, char *word, size_t size)
{
    bool plain = fabs(value) >= 0.01 && fabs(value) < 9999.5;
    snprintf(word, size, plain ? "%#.4g" : "%.3g", value);
    size_t len = strlen(word);
    if (plain && word[len - 1] == '.') word[len - 1] = 0;
}

/* Last values beside the ends of their curves, moved apart where they would touch. */
static void add_ends(struct text *t, const struct chart *c, const struct frame *f)
{
    int *order = heap(sizeof *order * (size_t)c->num_lines), count = 0;
    for (int i = 0; i < c->num_lines; i++) {
        if (!c->lines[i].count) continue;
        int at = count++;
        const struct chart_line *l = &c->lines[i];
        double y = down(f, l->y[l->count - 1]);
        for (; at > 0; at--) {
            const struct chart_line *above = &c->lines[order[at - 1]];
            if (down(f, above->y[above->count - 1]) <= y) break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    enum { APART = 15 };
    double floor_y = f->top + f->height + 4;
    double *places = heap(sizeof *places * (size_t)c->num_lines);
    for (int i = 0; i < count; i++) {
        const struct chart_line *l = &c->lines[order[i]];
        places[i] = down(f, l->y[l->count - 1]) + 4.5;
        if (i && places[i] < places[i - 1] + APART) places[i] = places[i - 1] + APART;
    }
    for (int i = count - 1; i >= 0; i--) {
        if (places[i] > floor_y) places[i] = floor_y;
        floor_y = places[i] - APART;
        const struct chart_line *l = &c->lines[order[i]];
        char last[32];
        write_value(l->y[l->count - 1], last, sizeof last);
        text_addf(t, "<g fill=\"%s\"%s>", palette[l->colour % NUM_COLOURS],
                  l->marks ? "" : " font-weight=\"600\"");
        add_word(t, f->left + f->width + 9, places[i], "", last);
        text_adds(t, "</g>\n");
    }
    free(order);
    free(places);
}

/* Places names one after the other, in rows; draws them if `t` is there.  Returns the rows. */
static int legend(struct text *t, const struct chart *c, double top)
{
    double x = EDGE, gap = 20;
    int rows = 1;
    for (int i = 0; i < c->num_lines; i++) {
        const struct chart_line *l = &c->lines[i];
        double wide = SWATCH + breadth(l->name, SMALL) + gap;
        if (x > EDGE && x + wide - gap > c->width - EDGE) x = EDGE, rows++;
        double y = top + rows * ROW - 7;
        const char *colour = palette[l->colour % NUM_COLOURS];
        if (t && l->marks)
            text_addf(t, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x + 9,
                      y - 4.5, colour);
        else if (t)
            text_addf(t, "<path d=\"M%.1f %.1fh18\" stroke=\"%s\" stroke-width=\"3\"/>\n", x,
                      y - 4.5, colour);
        if (t) add_word(t, x + SWATCH, y, "", l->name);
        x += wide;
    }
    return rows;
}

void chart_svg(const struct chart *c, struct text *out)
{
    bool named = c->num_lines > 1;
    double top = c->title ? 40 : 10;
    struct frame f = {.left = LEFT, .top = top + ROW * (named ? legend(NULL, c, 0) : 0) + ROW + 8};
    f.width = fmax(c->width - LEFT - RIGHT, 10);
    f.height = fmax(c->height - f.top - BOTTOM, 10);
    int x_ticks = (int)fmin(fmax(f.width / 100, 2), 12);
    int y_ticks = (int)fmin(fmax(f.height / 55, 2), 12);
    chart_axes(c, x_ticks, y_ticks, &f.x, &f.y);
    text_addf(out,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
              "viewBox=\"0 0 %d %d\" font-family=\"system-ui, -apple-system, 'Segoe UI', "
              "Helvetica, Arial, sans-serif\" font-size=\"%d\" fill=\"" INK "\">\n",
              c->width, c->height, c->width, c->height, SMALL);
    if (c->title) {
        text_addf(out, "<title>");
        add_escaped(out, c->title);
        text_addf(out, "</title>\n<g font-size=\"%d\" font-weight=\"600\">", LARGE);
        add_word(out, EDGE, 28, "", c->title);
        text_adds(out, "</g>\n");
    }
    if (named) legend(out, c, top);
    add_word(out, EDGE, f.top - 14, "", c->y_label);
    add_grid(out, &f);
    add_word(out, f.left + f.width / 2, c->height - 8, "middle", c->x_label);
    for (int pass = 0; pass < 2; pass++) /* marks last, so that lines do not cover them */
        for (int i = 0; i < c->num_lines; i++)
            if (c->lines[i].marks == pass) add_line(out, &f, &c->lines[i]);
    add_ends(out, c, &f);
    text_adds(out, "</svg>\n");
}
