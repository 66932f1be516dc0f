/* build.h -- how this program was built, and with which libraries it runs. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

/* Appends "oneDNN 2.6.3, zlib 1.2.13, ...". */
void build_add_libraries(struct text *out);
/* Appends a line each: compiler, flags, ISAs, MPI, GPU, the Hub, libraries, and the files of the
 * shared ones. */
void build_describe(struct text *out);
