// SPDX-License-Identifier: Apache-2.0
#include "app/length_chart.h"

#include "base/file.h"
#include "plot/chart.h"

#include <stdlib.h>

/* One curve of steps, with two points per bin. */
struct length_curve {
    double x[2 * SOURCE_STATS_BINS], y[2 * SOURCE_STATS_BINS];
};

enum status length_chart_write(const struct source_stats *all, size_t count, const char *path)
{
    struct length_curve *curves = heap(count * sizeof *curves);
    struct chart_line *lines = heap(count * sizeof *lines);
    struct chart c = {.title = "Lengths of documents",
                      .x_label = "tokens per document, log2",
                      .y_label = "% of documents",
                      .lines = lines,
                      .width = 860,
                      .height = 440};
    struct text out = {0};
    enum status st = STATUS_OK;
    for (size_t i = 0; i < count; i++) {
        const struct source_stats *s = &all[i];
        struct length_curve *k = &curves[c.num_lines];
        struct chart_line *l = &lines[c.num_lines];
        int first, last;
        source_stats_bins(s, &first, &last);
        *l = (struct chart_line){
            .name = s->scan.source->config->path, .x = k->x, .y = k->y, .color = (int)i};
        for (int b = first ? first : 1; b <= last && s->documents; b++, l->count += 2) {
            k->x[l->count] = b - 1, k->x[l->count + 1] = b;
            k->y[l->count] = k->y[l->count + 1] =
                100 * (double)s->lengths[b] / (double)s->documents;
        }
        c.num_lines += l->count > 0;
    }
    if (!c.num_lines) FAIL_OUT(DATA, "--svg: no source has a document with tokens");
    chart_svg(&c, &out);
    TRY_OUT(file_write(path, out.data, out.len));
out:
    text_release(&out);
    free(curves), free(lines);
    return st;
}
