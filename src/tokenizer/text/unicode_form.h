/* unicode_form.h -- Unicode's normalization forms C and D (UAX 15).
 *
 * The tables are made by tools/make_unicode.py.  Bytes that are no UTF-8 stay, and nothing composes
 * across them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>

enum unicode_form { FORM_NONE, FORM_NFC, FORM_NFD };

/* Appends the text in this form; false: it has that form already, nothing is appended. */
bool unicode_normalize(enum unicode_form form, const unsigned char *text, size_t len,
                       struct text *out);
