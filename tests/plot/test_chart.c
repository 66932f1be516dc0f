// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "plot/chart.h"

TEST(chart_axes_include_all_lines_and_their_raw_values)
{
    const double x[] = {5, 6, 7}, y[] = {1, 2, 3}, raw[] = {0, 2, 9}, far[] = {100, 200, 300};
    struct chart_line lines[] = {{.x = x, .y = y, .raw = raw, .count = 3},
                                 {.x = far, .y = y, .count = 3}};
    struct chart c = {.lines = lines, .num_lines = 2};
    struct axis across, up;
    chart_axes(&c, 5, 5, &across, &up);
    CHECK(across.low == 5 && across.high == 300);
    CHECK(up.low < 0 && up.high > 9 && up.high < 10);
}

TEST(chart_smoothing_preserves_straight_lines)
{
    double y[20], s[20];
    for (int i = 0; i < 20; i++) y[i] = 3 * i - 7;
    for (size_t window = 1; window < 60; window += 4) {
        chart_smooth(y, 20, window, s);
        for (int i = 0; i < 20; i++) CHECK_NEAR(s[i], y[i], 1e-12);
    }
}

TEST(chart_smoothing_averages_neighbors)
{
    const double y[] = {0, 9, 0, 0, 3};
    double s[5];
    chart_smooth(y, 5, 3, s);
    CHECK(s[0] == 0 && s[1] == 3 && s[2] == 3 && s[3] == 1 && s[4] == 3);
    chart_smooth(y, 1, 100, s);
    CHECK(s[0] == 0);
}

TEST(chart_smoothing_recovers_after_a_spike)
{
    double y[50], s[50];
    for (int i = 0; i < 50; i++) y[i] = i == 5 ? 1e30 : 2;
    chart_smooth(y, 50, 5, s);
    for (int i = 8; i < 50; i++) CHECK(s[i] == 2);
}
