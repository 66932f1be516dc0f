/* letter_case.h -- changes the case of letters, as HellaSwag's preprocessing does. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

/* Appends the UTF-8 text with its first character in upper case and all others in lower case, as
 * Python's str.capitalize does.  Maps one character to one: the few that Python maps to several,
 * such as the German sharp s at the beginning of a text, stay unchanged. */
void letter_case_capitalize(const char *bytes, size_t len, struct text *out);
