// SPDX-License-Identifier: Apache-2.0
#include "app/flags.h"

#include <string.h>

struct option flags_option(const struct flag *f)
{
    bool is_choice = f->kind == FLAG_KIND_CHOICE;
    return (struct option){.name = f->name,
                           .kind = is_choice                  ? OPTION_WORD
                                   : f->kind == FLAG_KIND_INT ? OPTION_INT
                                                              : OPTION_REAL,
                           .least = f->least,
                           .most = f->most,
                           .unit = is_choice ? f->value : ""};
}

static void add_bounds(const struct flag *f, struct text *out)
{
    const struct option o = flags_option(f);
    if (f->kind != FLAG_KIND_INT && f->kind != FLAG_KIND_REAL) return;
    if (f->most < FLAG_UNLIMITED)
        option_write_bounds(&o, out);
    else if (f->least > 0)
        text_addf(out, "at least %g", f->least);
}

/* Appends the value at `into`; nothing if that is no default. */
static void add_default(const struct flag *f, struct text *out)
{
    if (!f->into) return;
    switch (f->kind) {
    case FLAG_KIND_INT: {
        int64_t value = *(const int64_t *)f->into;
        if ((double)value >= f->least && (double)value <= f->most)
            text_addf(out, " %lld", (long long)value);
        return;
    }
    case FLAG_KIND_REAL: {
        double value = *(const double *)f->into;
        if (value >= f->least && value <= f->most) text_addf(out, " %g", value);
        return;
    }
    case FLAG_KIND_CHOICE: {
        const char *at = f->value;
        int left = *(const int *)f->into;
        for (; left > 0; left--) at = strchr(at, '|') + 1;
        if (!left) text_addf(out, " %.*s", (int)strcspn(at, "|"), at);
        return;
    }
    case FLAG_KIND_TEXT:
    case FLAG_KIND_FILE:
    case FLAG_KIND_FOLDER: {
        const char *value = *(const char *const *)f->into;
        if (value && *value) text_addf(out, " %s", value);
        return;
    }
    case FLAG_KIND_SWITCH:
    case FLAG_KIND_LIST:
    case FLAG_KIND_FILES: return;
    }
}

void flags_describe(const struct flag *f, bool is_given, struct text *out)
{
    static const char opens[] = " (default";
    const char *by_hand = strstr(f->help, opens);
    struct text bounds = {0}, preset = {0};
    add_bounds(f, &bounds);
    if (!is_given) add_default(f, &preset);
    text_add(out, f->help, by_hand ? (size_t)(by_hand - f->help) : strlen(f->help));
    if (bounds.len) text_addf(out, " (%s", bounds.data);
    const char *rest = by_hand ? by_hand + sizeof opens - 1 : bounds.len || preset.len ? ")" : "";
    if (*rest == ';' && !preset.len) /* "default; 0: all" of a value that is unknown */
        text_addf(out, "%s%s", bounds.len ? "; " : " (", rest + 2);
    else
        text_addf(out, "%s%s%s",
                  by_hand || preset.len ? bounds.len ? ", default" : " (default" : "",
                  preset.len ? preset.data : "", rest);
    text_release(&bounds), text_release(&preset);
}
