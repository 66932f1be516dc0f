// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/letter_case.h"

#include "base/status.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

void letter_case_capitalize(const char *bytes, size_t len, struct text *out)
{
    static const char pattern[] = "^(.)(.*)$", replacement[] = "\\u$1\\L$2";
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_DOTALL | PCRE2_DOLLAR_ENDONLY;
    int error;
    PCRE2_SIZE at, room = 2 * len + 1; /* the other case of a letter may need more bytes */
    if (!len) return;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error, &at, NULL);
    BUG_IF(!code);
    text_reserve(out, room);
    int count = pcre2_substitute(code, (PCRE2_SPTR)bytes, len, 0, PCRE2_SUBSTITUTE_EXTENDED, NULL,
                                 NULL, (PCRE2_SPTR)replacement, PCRE2_ZERO_TERMINATED,
                                 (PCRE2_UCHAR *)out->data + out->len, &room);
    pcre2_code_free(code);
    if (count == 1)
        out->len += room;
    else
        text_add(out, bytes, len); /* not UTF-8 */
}
