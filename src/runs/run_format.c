// SPDX-License-Identifier: Apache-2.0
#include "runs/run_format.h"

void run_format_count(struct text *out, double count)
{
    static const char *const units[] = {"", "K", "M", "B", "T"};
    int unit = 0;
    while (unit < 4 && count >= 999.5) count /= 1000, unit++;
    int decimals = !unit || count >= 99.95 ? 0 : count >= 9.995 ? 1 : 2;
    text_addf(out, "%.*f%s", decimals, count, units[unit]);
}

void run_format_age(struct text *out, double seconds)
{
    double days = seconds / 86400;
    if (seconds < 100)
        text_addf(out, "%.0fs", seconds);
    else if (seconds < 6000)
        text_addf(out, "%.0fm", seconds / 60);
    else if (days < 2)
        text_addf(out, "%.0fh", seconds / 3600);
    else
        text_addf(out, "%.0fd", days);
}
