/* letter_case.h -- changes the case of letters, for evaluation tasks that do. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

/* Appends the UTF-8 text with its first character in upper case and all others in lower case, as
 * Python's str.capitalize does.  Maps one character to one character, so the few that Python maps
 * to several, such as the German sharp s at the beginning of a text, stay as they are. */
void letter_case_capitalize(const char *bytes, size_t len, struct text *out);
