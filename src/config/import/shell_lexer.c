// SPDX-License-Identifier: Apache-2.0
#include "config/import/shell_lexer.h"

#include <string.h>

void shell_lexer_skip_blanks(struct shell_cursor *c)
{
    while (c->at < c->end) {
        if (*c->at == ' ' || *c->at == '\t' || *c->at == '\r') {
            c->at++;
        } else if (*c->at == '\\' && c->at + 1 < c->end && c->at[1] == '\n') {
            c->at += 2, c->line++;
        } else if (*c->at == '#') {
            while (c->at < c->end && *c->at != '\n') c->at++;
        } else {
            return;
        }
    }
}

static const char *end_of(const char *at, const char *end, int depth);

/* Returns the position after the bracket that closes the one before `at`; NULL: not closed. */
static const char *end_of_bracket(const char *at, const char *end, char open, char close, int depth)
{
    for (int level = 1; at && at < end;) {
        if (*at == open) level++;
        if (*at == close && !--level) return at + 1;
        at = *at == open || *at == close ? at + 1 : end_of(at, end, depth + 1);
    }
    return NULL;
}

static const char *end_of(const char *at, const char *end, int depth)
{
    const char *p = at + 1;
    if (depth > SHELL_MAX_DEPTH) return NULL;
    switch (*at) {
    case '\\': return p < end ? p + 1 : p;
    case '\'': p = memchr(p, '\'', (size_t)(end - p)); return p ? p + 1 : NULL;
    case '"':
        while (p && p < end && *p != '"') p = *p == '\'' ? p + 1 : end_of(p, end, depth + 1);
        return p && p < end ? p + 1 : NULL;
    case '`':
        while (p < end && *p != '`') p += *p == '\\' && p + 1 < end ? 2 : 1;
        return p < end ? p + 1 : NULL;
    case '$':
        if (p < end && *p == '(') return end_of_bracket(p + 1, end, '(', ')', depth);
        if (p < end && *p == '{') return end_of_bracket(p + 1, end, '{', '}', depth);
        return p;
    default: return p;
    }
}

const char *shell_lexer_past(const char *at, const char *end) { return end_of(at, end, 0); }

enum status shell_lexer_next(const struct shell *s, struct shell_cursor *c, struct shell_token *out)
{
    out->at = c->at;
    while (c->at < c->end && !strchr(" \t\r\n;|&<>()", *c->at)) {
        const char *next = shell_lexer_past(c->at, c->end);
        if (!next)
            FAIL(CONFIG, "%s:%d: unclosed %.20s", s->file, c->line,
                 *c->at == '\''  ? "'"
                 : *c->at == '"' ? "\""
                                 : "`, $( or ${");
        for (; c->at < next; c->at++) c->line += *c->at == '\n';
    }
    out->len = (size_t)(c->at - out->at);
    return STATUS_OK;
}
