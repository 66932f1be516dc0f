/* byte_size.h -- sizes of memory, files and transfers for people, in a binary unit that fits. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

struct byte_unit {
    const char *name;
    double bytes;
};
/* The largest of B, KiB, MiB and GiB that is at most `bytes`: for all rows of a table that has at
 * most so many. */
struct byte_unit byte_size_unit(double bytes);

struct byte_size {
    char text[32];
};
/* "79.65 GiB", "1.91 MiB", "12 B" */
struct byte_size byte_size_format(double bytes);
