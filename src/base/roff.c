// SPDX-License-Identifier: Apache-2.0
#include "base/roff.h"

#include <ctype.h>
#include <string.h>

void roff_begin(struct text *out, const char *name, int section, const char *manual)
{
    text_adds(out, ".TH ");
    for (const char *at = name; *at; at++) text_addf(out, "%c", toupper((unsigned char)*at));
    text_addf(out, " %d \"\" \"Llamero %s\" \"%s\"\n", section, LLAMERO_VERSION, manual);
}

void roff_section(struct text *out, const char *title) { text_addf(out, ".SH %s\n", title); }

/* A leading period or apostrophe would be a request; a plain - is a hyphen, which cannot be pasted
 * into a shell. */
static void add(struct text *out, const char *string, size_t len)
{
    bool bold = false;
    if (len && (*string == '.' || *string == '\'')) text_adds(out, "\\&");
    for (size_t i = 0; i < len; i++) {
        switch (string[i]) {
        case '\\': text_adds(out, "\\e"); break;
        case '-': text_adds(out, "\\-"); break;
        case '\'': text_adds(out, "\\(aq"); break;
        case '^': text_adds(out, "\\(ha"); break;
        case '~': text_adds(out, "\\(ti"); break;
        case '`':
            bold = !bold;
            text_adds(out, bold ? "\\fB" : "\\fR");
            break;
        default: text_add(out, string + i, 1);
        }
    }
    if (bold) text_adds(out, "\\fR");
}

void roff_add(struct text *out, const char *string)
{
    add(out, string, strlen(string));
    text_adds(out, "\n");
}

bool roff_is_table(const char *paragraph, size_t len)
{
    for (size_t i = 0; i + 2 < len; i++) {
        bool starts = i == 0 || paragraph[i - 1] == '\n';
        if (paragraph[i] == ' ' && starts) return true;
        if (!strchr(".:;?!\n ", paragraph[i]) && !strncmp(paragraph + i + 1, "  ", 2)) return true;
    }
    return false;
}

void roff_paragraphs(struct text *out, const char *string)
{
    for (const char *at = string, *next; *at; at = next) {
        const char *end = strstr(at, "\n\n");
        size_t len = end ? (size_t)(end - at) : strlen(at);
        bool table = roff_is_table(at, len);
        next = end ? end + 2 + strspn(end + 2, "\n") : at + len;
        if (at > string) text_adds(out, ".PP\n");
        if (table) text_adds(out, ".nf\n");
        for (const char *line = at; line < at + len;) {
            size_t n = strcspn(line, "\n");
            add(out, line, n);
            text_adds(out, "\n");
            line += n + 1;
        }
        if (table) text_adds(out, ".fi\n");
    }
}

void roff_entry(struct text *out, const char *tag, const char *value)
{
    text_adds(out, ".TP\n\\fB");
    add(out, tag, strlen(tag));
    text_adds(out, "\\fR");
    if (*value) {
        text_adds(out, " \\fI");
        add(out, value, strlen(value));
        text_adds(out, "\\fR");
    }
    text_adds(out, "\n");
}
