// SPDX-License-Identifier: Apache-2.0
#include "plot/chart.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Mid-tones that contrast with both white and dark pages. */
static const char *const palette[] = {"#2f81f7", "#e0792b", "#2da44e", "#a371f7",
                                      "#d4589c", "#1b9aaa", "#b08800", "#e5534b"};
enum { NUM_COLORS = sizeof palette / sizeof *palette };
#define INK  "#6e7781"
#define RULE "#8b949e"

enum {
    MARGIN = 14,
    LEFT = 62,
    RIGHT = 74,
    BOTTOM = 46,
    FONT_SIZE = 13,
    TITLE_FONT_SIZE = 17,
    LEGEND_ROW = 22,
    SWATCH = 24
};

/* The plot area in pixels, and the axes. */
struct svg_frame {
    double left, top, width, height;
    struct axis x, y;
};

static double x_pixel(const struct svg_frame *f, double x)
{
    return f->left + f->width * axis_position(&f->x, x);
}

static double y_pixel(const struct svg_frame *f, double y)
{
    return f->top + f->height * (1 - axis_position(&f->y, y));
}

/* Escapes text for XML; characters that XML or UTF-8 does not allow become question marks. */
static void append_escaped(struct text *t, const char *string)
{
    bool valid = text_is_utf8(string, strlen(string));
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

/* An estimate without font metrics: the average width of a sans-serif letter. */
static double text_width(const char *string, int size)
{
    size_t letters = 0;
    for (const char *at = string; *at; at++) letters += ((unsigned char)*at & 0xC0) != 0x80;
    return 0.56 * size * (double)letters;
}

static void append_label(struct text *t, double x, double y, const char *anchor, const char *word)
{
    text_addf(t, "<text x=\"%.1f\" y=\"%.1f\"%s%s%s>", x, y, *anchor ? " text-anchor=\"" : "",
              anchor, *anchor ? "\"" : "");
    append_escaped(t, word);
    text_adds(t, "</text>\n");
}

static void append_grid(struct text *t, const struct svg_frame *f)
{
    char label[AXIS_LABEL];
    double bottom = f->top + f->height, right = f->left + f->width;
    text_adds(t, "<g stroke=\"" RULE "\" stroke-opacity=\"0.28\">\n");
    for (int i = 0; i < f->y.num_ticks; i++)
        text_addf(t, "<path d=\"M%.1f %.1fH%.1f\"/>\n", f->left, y_pixel(f, f->y.ticks[i]), right);
    text_adds(t, "</g>\n<g stroke=\"" RULE "\">\n");
    text_addf(t, "<path d=\"M%.1f %.1fH%.1f\"/>\n", f->left, bottom, right);
    for (int i = 0; i < f->x.num_ticks; i++)
        text_addf(t, "<path d=\"M%.1f %.1fv5\"/>\n", x_pixel(f, f->x.ticks[i]), bottom);
    text_adds(t, "</g>\n");
    for (int i = 0; i < f->y.num_ticks; i++) {
        axis_label(&f->y, f->y.ticks[i], label);
        append_label(t, f->left - 9, y_pixel(f, f->y.ticks[i]) + 4.5, "end", label);
    }
    for (int i = 0; i < f->x.num_ticks; i++) {
        axis_label(&f->x, f->x.ticks[i], label);
        append_label(t, x_pixel(f, f->x.ticks[i]), bottom + 20, "middle", label);
    }
}

static void append_point(struct text *t, const struct svg_frame *f, bool *first, double x, double y)
{
    text_addf(t, "%s%.1f %.1f", *first ? "M" : "L", x_pixel(f, x), y_pixel(f, y));
    *first = false;
}

/* Joins the points.  If there are many per pixel column, keeps only the minimum and maximum of each
 * column, which looks the same. */
static void append_curve(struct text *t, const struct svg_frame *f, const struct chart_line *l,
                         const double *ys, const char *style)
{
    size_t count = l->count, columns = (size_t)f->width;
    size_t stride = count > 4 * columns ? count / columns : 1;
    bool first = true;
    text_adds(t, "<path d=\"");
    for (size_t i = 0; i < count; i += stride) {
        size_t end = i + stride < count ? i + stride : count, low = i, high = i;
        for (size_t j = i; j < end; j++) {
            if (ys[j] < ys[low]) low = j;
            if (ys[j] > ys[high]) high = j;
        }
        size_t one = low < high ? low : high, other = low < high ? high : low;
        append_point(t, f, &first, l->x[one], ys[one]);
        if (other != one) append_point(t, f, &first, l->x[other], ys[other]);
    }
    if (stride > 1) append_point(t, f, &first, l->x[count - 1], ys[count - 1]);
    text_addf(t, "\" fill=\"none\" stroke-linejoin=\"round\" %s/>\n", style);
}

static void append_line(struct text *t, const struct svg_frame *f, const struct chart_line *l)
{
    char style[128];
    const char *color = palette[l->color % NUM_COLORS];
    if (!l->count) return;
    if (l->raw) {
        snprintf(style, sizeof style, "stroke=\"%s\" stroke-opacity=\"0.35\"", color);
        append_curve(t, f, l, l->raw, style);
    }
    snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"%s\"", color,
             l->marks ? "1.2\" stroke-dasharray=\"3 4" : "1.8");
    append_curve(t, f, l, l->y, style);
    for (size_t i = 0; l->marks && i < l->count; i++)
        text_addf(t, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\" fill=\"%s\"/>\n",
                  x_pixel(f, l->x[i]), y_pixel(f, l->y[i]), color);
}

/* Four significant digits with trailing zeros; very small and large values in %g. */
static void format_value(double value, char *word, size_t size)
{
    bool plain = fabs(value) >= 0.01 && fabs(value) < 9999.5;
    snprintf(word, size, plain ? "%#.4g" : "%.3g", value);
    size_t len = strlen(word);
    if (plain && word[len - 1] == '.') word[len - 1] = 0;
}

/* Labels each line's end with its last value, and moves labels apart that would overlap. */
static void append_last_values(struct text *t, const struct chart *c, const struct svg_frame *f)
{
    int *order = heap(sizeof *order * (size_t)c->num_lines), count = 0;
    for (int i = 0; i < c->num_lines; i++) {
        if (!c->lines[i].count) continue;
        int at = count++;
        const struct chart_line *l = &c->lines[i];
        double y = y_pixel(f, l->y[l->count - 1]);
        for (; at > 0; at--) {
            const struct chart_line *above = &c->lines[order[at - 1]];
            if (y_pixel(f, above->y[above->count - 1]) <= y) break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    enum { MIN_DISTANCE = 15 };
    double floor_y = f->top + f->height + 4;
    double *y_labels = heap(sizeof *y_labels * (size_t)c->num_lines);
    for (int i = 0; i < count; i++) {
        const struct chart_line *l = &c->lines[order[i]];
        y_labels[i] = y_pixel(f, l->y[l->count - 1]) + 4.5;
        if (i && y_labels[i] < y_labels[i - 1] + MIN_DISTANCE)
            y_labels[i] = y_labels[i - 1] + MIN_DISTANCE;
    }
    for (int i = count - 1; i >= 0; i--) {
        if (y_labels[i] > floor_y) y_labels[i] = floor_y;
        floor_y = y_labels[i] - MIN_DISTANCE;
        const struct chart_line *l = &c->lines[order[i]];
        char last[32];
        format_value(l->y[l->count - 1], last, sizeof last);
        text_addf(t, "<g fill=\"%s\"%s>", palette[l->color % NUM_COLORS],
                  l->marks ? "" : " font-weight=\"600\"");
        append_label(t, f->left + f->width + 9, y_labels[i], "", last);
        text_adds(t, "</g>\n");
    }
    free(order);
    free(y_labels);
}

/* Lays out the names in rows and draws them unless `t` is NULL.  Returns the number of rows. */
static int layout_legend(struct text *t, const struct chart *c, double top)
{
    double x = MARGIN, gap = 20;
    int rows = 1;
    for (int i = 0; i < c->num_lines; i++) {
        const struct chart_line *l = &c->lines[i];
        double width = SWATCH + text_width(l->name, FONT_SIZE) + gap;
        if (x > MARGIN && x + width - gap > c->width - MARGIN) x = MARGIN, rows++;
        double y = top + rows * LEGEND_ROW - 7;
        const char *color = palette[l->color % NUM_COLORS];
        if (t && l->marks)
            text_addf(t, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x + 9,
                      y - 4.5, color);
        else if (t)
            text_addf(t, "<path d=\"M%.1f %.1fh18\" stroke=\"%s\" stroke-width=\"3\"/>\n", x,
                      y - 4.5, color);
        if (t) append_label(t, x + SWATCH, y, "", l->name);
        x += width;
    }
    return rows;
}

void chart_svg(const struct chart *c, struct text *out)
{
    bool has_legend = c->num_lines > 1;
    double top = c->title ? 40 : 10;
    struct svg_frame f = {.left = LEFT,
                          .top = top + LEGEND_ROW * (has_legend ? layout_legend(NULL, c, 0) : 0) +
                                 LEGEND_ROW + 8};
    f.width = fmax(c->width - LEFT - RIGHT, 10);
    f.height = fmax(c->height - f.top - BOTTOM, 10);
    int x_ticks = (int)fmin(fmax(f.width / 100, 2), 12);
    int y_ticks = (int)fmin(fmax(f.height / 55, 2), 12);
    chart_axes(c, x_ticks, y_ticks, &f.x, &f.y);
    text_addf(out,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
              "viewBox=\"0 0 %d %d\" font-family=\"system-ui, -apple-system, 'Segoe UI', "
              "Helvetica, Arial, sans-serif\" font-size=\"%d\" fill=\"" INK "\">\n",
              c->width, c->height, c->width, c->height, FONT_SIZE);
    if (c->title) {
        text_addf(out, "<title>");
        append_escaped(out, c->title);
        text_addf(out, "</title>\n<g font-size=\"%d\" font-weight=\"600\">", TITLE_FONT_SIZE);
        append_label(out, MARGIN, 28, "", c->title);
        text_adds(out, "</g>\n");
    }
    if (has_legend) layout_legend(out, c, top);
    append_label(out, MARGIN, f.top - 14, "", c->y_label);
    append_grid(out, &f);
    append_label(out, f.left + f.width / 2, c->height - 8, "middle", c->x_label);
    for (int pass = 0; pass < 2; pass++) /* draw markers last, so that lines do not cover them */
        for (int i = 0; i < c->num_lines; i++)
            if (c->lines[i].marks == pass) append_line(out, &f, &c->lines[i]);
    append_last_values(out, c, &f);
    text_adds(out, "</svg>\n");
}
