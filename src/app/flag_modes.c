// SPDX-License-Identifier: Apache-2.0
#include "app/flag_modes.h"
#include "base/text.h"

#include <stdbool.h>
#include <string.h>

/* Appends the modes that read the flag: "tokenizer train or tokenizer show"; nothing: all do. */
static void add_readers(const struct flag_modes *m, const char *help, struct text *readers,
                        bool *is_read)
{
    const char *colon = strchr(help, ':');
    *is_read = true;
    for (const char *at = help; colon && at < colon; at += strspn(at, ", |")) {
        size_t len = strcspn(at, ", |:");
        if (!len || !text_is_choice(m->all, at, len)) {
            text_clear(readers);
            *is_read = true;
            return;
        }
        if (at == help) *is_read = false;
        *is_read |= text_is_choice(m->mode, at, len);
        text_addf(readers, "%s%s%.*s", at == help ? "" : " or ", m->before, (int)len, at);
        at += len;
        if (*at == ':') return;
    }
}

enum status flag_modes_check(const struct flag_modes *m, const struct flag *flags, uint64_t given)
{
    for (int i = 0; flags[i].name; i++) {
        struct text readers = {0};
        enum status st = STATUS_OK;
        bool is_read;
        if (!(given >> i & 1)) continue;
        add_readers(m, flags[i].help, &readers, &is_read);
        if (!is_read)
            st = FAILURE(USAGE, "--%s requires %s; it has no effect with %s%s", flags[i].name,
                         readers.data, m->before, m->mode);
        text_release(&readers);
        if (st) return st;
    }
    return STATUS_OK;
}
