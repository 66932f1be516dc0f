/* program.h -- which program this process runs. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

/* Appends what only this build of the program has: the linker's build ID, or without one a hash of
 * the program's file. */
void program_add_build(struct text *out);
