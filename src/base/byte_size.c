// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"

#include <stddef.h>
#include <stdio.h>

struct byte_unit byte_size_unit(double bytes)
{
    static const struct byte_unit units[] = {
        {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}};
    size_t i = 0;
    while (i < 3 && bytes < 0.999995 * units[i].bytes) i++; /* not 1024.00 of the one below */
    return units[i];
}

struct byte_size byte_size_format(double bytes)
{
    struct byte_unit unit = byte_size_unit(bytes);
    struct byte_size s;
    snprintf(s.text, sizeof s.text, "%.*f %s", unit.bytes > 1 ? 2 : 0, bytes / unit.bytes,
             unit.name);
    return s;
}
