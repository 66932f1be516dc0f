/* byte_size.h -- sizes of memory, files and transfers for people, in a binary unit that fits. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

struct byte_unit {
    const char *name;
    double bytes;
};
/* The largest of B, KiB, MiB and GiB in which `bytes` is at least 1.00.  A table uses the unit of
 * its largest row. */
struct byte_unit byte_size_unit(double bytes);

struct byte_size {
    char text[32];
};
/* "79.65 GiB", "1.91 MiB", "12 B" */
struct byte_size byte_size_format(double bytes);
