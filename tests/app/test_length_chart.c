// SPDX-License-Identifier: Apache-2.0
#include "app/length_chart.h"

#include "test.h"

#include "base/file.h"

TEST(a_length_chart_has_a_curve_for_each_source_with_tokens)
{
    struct source_config configs[] = {{.path = "a"}, {.path = "empty"}, {.path = "b"}};
    struct source sources[3];
    struct source_stats all[3] = {{.documents = 4}, {.documents = 2}, {.documents = 1}};
    const char *path = test_path(test_folder(), "lengths.svg");
    struct text svg = {0};
    for (int i = 0; i < 3; i++) {
        sources[i] = (struct source){.config = &configs[i]};
        all[i].scan.source = &sources[i];
    }
    all[0].lengths[0] = 1, all[0].lengths[3] = 3; /* 4 to 7 tokens */
    all[1].lengths[0] = 2;
    all[2].lengths[9] = 1;
    CHECK_STATUS(OK, length_chart_write(all, 3, path));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &svg));
    CHECK(strstr(svg.data, ">a</text>") && strstr(svg.data, ">b</text>"));
    CHECK(!strstr(svg.data, ">empty</text>") && strstr(svg.data, "% of documents"));
    CHECK_STATUS(DATA, length_chart_write(all + 1, 1, path));
    text_release(&svg);
}
