// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/json.h"
#include "plot/chart.h"

static const double steps[] = {0, 10, 20, 30}, values[] = {4, 3, 2, 1};

/* A basic check: tags nest and close, attributes are quoted, no stray < or &. */
static bool well_formed(const char *at)
{
    char stack[16][16];
    int depth = 0;
    while (*at) {
        if (*at == '&') {
            at += strcspn(at, ";<");
            if (*at != ';') return false;
        }
        if (*at++ != '<') continue;
        bool closing = *at == '/', quoted = false;
        at += closing;
        size_t len = strcspn(at, " />");
        if (!len || len > 15 || depth == 16) return false;
        if (closing) {
            if (!depth-- || strlen(stack[depth]) != len || memcmp(stack[depth], at, len))
                return false;
        } else {
            memcpy(stack[depth], at, len);
            stack[depth++][len] = 0;
        }
        for (; *at && (quoted || *at != '>'); at++) {
            if (*at == '<') return false;
            if (*at == '"') quoted = !quoted;
        }
        if (!*at) return false;
        if (at[-1] == '/') depth--;
        at++;
    }
    return depth == 0;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

TEST(chart_svg_is_a_document_of_the_requested_size)
{
    struct chart_line l[] = {
        {.name = "loss", .x = steps, .y = values, .raw = values, .count = 4},
        {.name = "validation", .x = steps, .y = values, .count = 4, .marks = true, .color = 1}};
    struct chart c = {.title = "A title",
                      .x_label = "step",
                      .y_label = "loss (nats/token)",
                      .lines = l,
                      .num_lines = 2,
                      .width = 640,
                      .height = 360};
    struct text t = {0};
    chart_svg(&c, &t);
    CHECK(well_formed(t.data) && text_is_utf8(t.data, t.len));
    CHECK(strstr(t.data, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" "
                         "height=\"360\"") == t.data);
    CHECK(strstr(t.data, ">A title</text>") && strstr(t.data, ">loss (nats/token)</text>"));
    CHECK(strstr(t.data, ">step</text>") && strstr(t.data, ">validation</text>"));
    CHECK(count(t.data, "<circle") == 5); /* four markers and one in the legend */
    CHECK(count(t.data, ">1.000</text>") == 2);
    CHECK(!strstr(t.data, "nan") && !strstr(t.data, "inf"));
    text_release(&t);
}

TEST(chart_svg_escapes_names)
{
    struct chart_line l = {.name = "x", .x = steps, .y = values, .count = 4};
    struct chart c = {.title = "a<b>&\"c\" \xff\x01",
                      .x_label = "s",
                      .y_label = "\u00e9",
                      .lines = &l,
                      .num_lines = 1,
                      .width = 300,
                      .height = 200};
    struct text t = {0};
    chart_svg(&c, &t);
    CHECK(well_formed(t.data) && text_is_utf8(t.data, t.len));
    CHECK(strstr(t.data, "a&#60;b&#62;&#38;&#34;c&#34; ??") && strstr(t.data, "\u00e9"));
    text_release(&t);
}

TEST(chart_svg_of_many_points_stays_small_and_keeps_extremes)
{
    enum { N = 200000 };
    double *x = heap(N * sizeof *x), *y = heap(N * sizeof *y);
    for (int i = 0; i < N; i++) x[i] = i, y[i] = i % 2 ? 1 : 2;
    y[N / 2] = 50;
    struct chart_line l = {.name = "x", .x = x, .y = y, .count = N};
    struct chart c = {
        .x_label = "s", .y_label = "y", .lines = &l, .num_lines = 1, .width = 800, .height = 400};
    struct text t = {0};
    chart_svg(&c, &t);
    CHECK(well_formed(t.data) && t.len < 60000);
    double highest = 400; /* the spike is 4 % below the top */
    const char *curve = strstr(t.data, "<path d=\"M62.0");
    for (const char *at = strstr(curve, "L"); at && *at == 'L'; at += 1 + strcspn(at + 1, "L\"")) {
        double position = strtod(strchr(at, ' '), NULL);
        if (position < highest) highest = position;
    }
    CHECK_NEAR(highest, 40 + (400 - 40 - 46) * 0.04 / 1.08, 0.1);
    CHECK(count(t.data, "L") > 1000);
    free(x);
    free(y);
    text_release(&t);
}

TEST(chart_svg_last_values_do_not_overlap)
{
    enum { LINES = 12 };
    double y[LINES][2];
    struct chart_line l[LINES];
    for (int i = 0; i < LINES; i++) {
        y[i][0] = 5, y[i][1] = 1 + 0.001 * i;
        l[i] = (struct chart_line){.name = "r", .x = steps, .y = y[i], .count = 2, .color = i};
    }
    struct chart c = {.x_label = "s",
                      .y_label = "y",
                      .lines = l,
                      .num_lines = LINES,
                      .width = 800,
                      .height = 400};
    struct text t = {0};
    chart_svg(&c, &t);
    double before = 0;
    int found = 0;
    for (const char *at = t.data;
         (at = strstr(at, "font-weight=\"600\"><text x=\"735.0\" y=\""));) {
        at += strlen("font-weight=\"600\"><text x=\"735.0\" y=\"");
        double position = strtod(at, NULL);
        CHECK(position > 0 && position < 400 && (!found || position < before - 14.9));
        before = position, found++;
    }
    CHECK(found == LINES);
    text_release(&t);
}
