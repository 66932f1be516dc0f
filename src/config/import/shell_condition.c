// SPDX-License-Identifier: Apache-2.0
#include "config/import/shell_condition.h"

#include "config/import/shell_arithmetic.h"

#include <string.h>

enum { MAX_WORDS = 256 };

bool shell_condition_match(const char *pattern, const char *word)
{
    const char *star = NULL, *back = NULL;
    while (*word) {
        if (*pattern == '*') {
            star = pattern++, back = word;
        } else if (*pattern == '?' || *pattern == *word) {
            pattern++, word++;
        } else if (star) {
            pattern = star + 1, word = ++back;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

static enum shell_result result_of(bool holds) { return holds ? SHELL_TRUE : SHELL_FALSE; }

static enum status evaluate_unary(struct shell *s, const char *op, const char *word, int line,
                                  enum shell_result *out)
{
    struct text note = {0};
    if (!strcmp(op, "-z") || !strcmp(op, "-n")) {
        *out = result_of((op[1] == 'n') == (*word != 0));
    } else if (!strcmp(op, "-v")) {
        *out = result_of(shell_find(s, word) != NULL);
    } else if (op[0] == '-' && op[1] && !op[2] && strchr("defhLrswxp", op[1])) {
        text_addf(&note, "files are not checked: %.200s is assumed to exist", word);
        shell_add_note(s, line, note.data);
        *out = SHELL_TRUE;
    } else {
        *out = SHELL_UNKNOWN;
    }
    text_release(&note);
    return STATUS_OK;
}

static enum status evaluate_binary(const char *left, const char *op, const char *right,
                                   enum shell_result *out)
{
    static const char *const orders[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
    int64_t a, b;
    *out = SHELL_UNKNOWN;
    if (shell_is_unknown(left) || shell_is_unknown(right)) return STATUS_OK;
    if (!strcmp(op, "=") || !strcmp(op, "==")) *out = result_of(shell_condition_match(right, left));
    if (!strcmp(op, "!=")) *out = result_of(!shell_condition_match(right, left));
    if (!strcmp(op, "<")) *out = result_of(strcmp(left, right) < 0);
    if (!strcmp(op, ">")) *out = result_of(strcmp(left, right) > 0);
    for (int i = 0; i < 6; i++) {
        if (strcmp(op, orders[i])) continue;
        if (!shell_arithmetic_number(*left ? left : "0", &a) ||
            !shell_arithmetic_number(*right ? right : "0", &b)) {
            *out = SHELL_FALSE; /* bash prints an error and continues */
            return STATUS_OK;
        }
        const bool results[] = {a == b, a != b, a<b, a <= b, a> b, a >= b};
        *out = result_of(results[i]);
    }
    return STATUS_OK;
}

static enum shell_result combine(enum shell_result a, enum shell_result b, bool both)
{
    enum shell_result settles = both ? SHELL_FALSE : SHELL_TRUE;
    if (a == settles || b == settles) return settles;
    return a == SHELL_UNKNOWN || b == SHELL_UNKNOWN ? SHELL_UNKNOWN
           : both                                   ? SHELL_TRUE
                                                    : SHELL_FALSE;
}

static enum status evaluate(struct shell *s, struct shell_words w, int line, enum shell_result *out)
{
    TRY(shell_count_step(s, line));
    *out = SHELL_FALSE;
    if (!w.count) return STATUS_OK;
    for (int both = 0; both < 2; both++) /* -o has lower precedence than -a */
        for (size_t i = 1; i + 1 < w.count; i++) {
            const struct shell_words before = {w.items, i};
            const struct shell_words after = {w.items + i + 1, w.count - i - 1};
            enum shell_result left, right;
            if (strcmp(w.items[i], both ? "-a" : "-o")) continue;
            TRY(evaluate(s, before, line, &left));
            TRY(evaluate(s, after, line, &right));
            *out = combine(left, right, both);
            return STATUS_OK;
        }
    if (w.count > 1 && !strcmp(w.items[0], "!")) {
        TRY(evaluate(s, (struct shell_words){w.items + 1, w.count - 1}, line, out));
        if (*out != SHELL_UNKNOWN) *out = result_of(*out == SHELL_FALSE);
        return STATUS_OK;
    }
    switch (w.count) {
    case 1: *out = result_of(*w.items[0] != 0); return STATUS_OK;
    case 2: return evaluate_unary(s, w.items[0], w.items[1], line, out);
    case 3: return evaluate_binary(w.items[0], w.items[1], w.items[2], out);
    default: *out = SHELL_UNKNOWN; return STATUS_OK;
    }
}

enum status shell_condition_evaluate(struct shell *s, struct shell_words words, int line,
                                     enum shell_result *out)
{
    if (words.count > MAX_WORDS)
        FAIL(CONFIG, "%s:%d: condition longer than %d words", s->file, line, MAX_WORDS);
    return evaluate(s, words, line, out);
}
