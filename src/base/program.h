/* program.h -- which program this process runs. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

/* Appends what only this build of the program has: the linker's build ID, or without one a hash of
 * the program's file. */
void program_add_build(struct text *out);

/* Appends a line per shared library that the program is linked with: the path of its file, whose
 * name has the library's version. */
void program_add_libraries(struct text *out);
