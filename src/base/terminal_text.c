// SPDX-License-Identifier: Apache-2.0
#include "base/terminal_text.h"

#include "base/terminal.h"

#include <stdio.h>
#include <unistd.h>

/* Whether more bytes could complete the character at `at`. */
static bool is_cut(const unsigned char *at, const unsigned char *end)
{
    int need = *at >= 0xF5 ? 0 : *at >= 0xF0 ? 4 : *at >= 0xE0 ? 3 : *at >= 0xC2 ? 2 : 0;
    if (end - at >= need) return false;
    for (const unsigned char *next = at + 1; next < end; next++)
        if ((*next & 0xC0) != 0x80) return false;
    return true;
}

size_t terminal_text_add(struct text *out, const char *bytes, size_t len, bool last)
{
    const unsigned char *at = (const unsigned char *)bytes, *end = at + len;
    while (at < end) {
        size_t n = text_utf8_length(at, end);
        if (!n && !last && is_cut(at, end)) break;
        bool is_c1 = n == 2 && at[0] == 0xC2 && at[1] < 0xA0;
        if (!n)
            text_adds(out, "\xEF\xBF\xBD"); /* U+FFFD */
        else if (is_c1 || *at == 0x7F || (*at < 0x20 && *at != '\n' && *at != '\t'))
            text_addf(out, "\\x%02x", at[n - 1]);
        else
            text_add(out, at, n);
        at += n ? n : 1;
    }
    return (size_t)(at - (const unsigned char *)bytes);
}

size_t terminal_text_write(const char *bytes, size_t len, bool last)
{
    struct text out = {0};
    bool escapes = terminal_is(STDOUT_FILENO);
    size_t used = escapes ? terminal_text_add(&out, bytes, len, last) : len;
    if (escapes)
        fwrite(out.data ? out.data : "", 1, out.len, stdout);
    else if (len)
        fwrite(bytes, 1, len, stdout);
    fflush(stdout);
    text_release(&out);
    return used;
}
