// SPDX-License-Identifier: Apache-2.0
#include "base/counted.h"

#include <stdio.h>

struct counted counted_format(int64_t count, const char *noun)
{
    struct counted c;
    snprintf(c.text, sizeof c.text, "%lld %.40s%s", (long long)count, noun, count == 1 ? "" : "s");
    return c;
}
