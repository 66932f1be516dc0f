// SPDX-License-Identifier: Apache-2.0
#include "config/import/shell_parse.h"

#include "config/import/shell_command.h"
#include "config/import/shell_expand.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static enum status parse_list(struct shell *s, struct shell_cursor *c, bool run,
                              enum shell_result *result);
static enum status parse_command(struct shell *s, struct shell_cursor *c, bool run,
                                 enum shell_result *result);

/* Skips a newline and the here-documents that start after it. */
static void skip_newline(struct shell_cursor *c)
{
    c->at++, c->line++;
    for (size_t i = 0; i < c->heredocs.count; i++) {
        const char *word = c->heredocs.items[i];
        while (c->at < c->end) {
            const char *end = memchr(c->at, '\n', (size_t)(c->end - c->at));
            const char *from = c->at, *to = end ? end : c->end;
            while (from < to && *from == '\t') from++;
            bool last = (size_t)(to - from) == strlen(word) && !memcmp(from, word, strlen(word));
            c->at = end ? end + 1 : c->end, c->line++;
            if (last) break;
        }
    }
    shell_words_release(&c->heredocs);
}

/* Whether the sign comes next, and not twice. */
static bool is_single(const struct shell_cursor *c, char sign)
{
    return c->at < c->end && *c->at == sign && (c->at + 1 == c->end || c->at[1] != sign);
}

static void skip_separators(struct shell_cursor *c)
{
    for (;;) {
        shell_lexer_skip_blanks(c);
        if (c->at < c->end && *c->at == '\n')
            skip_newline(c);
        else if (is_single(c, ';') || is_single(c, '&'))
            c->at++;
        else
            return;
    }
}

/* Whether the next word is this reserved word. */
static bool next_is(struct shell_cursor *c, const char *word)
{
    size_t len = strlen(word);
    shell_lexer_skip_blanks(c);
    if ((size_t)(c->end - c->at) < len || memcmp(c->at, word, len)) return false;
    return c->at + len == c->end || strchr(" \t\r\n;|&<>()", c->at[len]);
}

static enum status expect_word(const struct shell *s, struct shell_cursor *c, const char *word)
{
    skip_separators(c);
    if (!next_is(c, word))
        FAIL(CONFIG, "%s:%d: expected \"%s\", got \"%.*s\"", s->file, c->line, word,
             (int)(c->end - c->at > 20 ? 20 : c->end - c->at), c->at);
    c->at += strlen(word);
    return STATUS_OK;
}

/* Skips [n]>file, <file, 2>&1, &>file, <<word and <<<word: no file is read or written. */
static enum status skip_redirections(struct shell *s, struct shell_cursor *c)
{
    for (;;) {
        struct shell_token token;
        size_t digits = 0;
        shell_lexer_skip_blanks(c);
        while (c->at + digits < c->end && isdigit((unsigned char)c->at[digits])) digits++;
        const char *op = c->at + digits;
        bool both = op + 1 < c->end && !digits && *op == '&' && op[1] == '>';
        if (!both &&
            (op >= c->end || (*op != '>' && *op != '<') || (op + 1 < c->end && op[1] == '(')))
            return STATUS_OK;
        c->at = op + both;
        int less = 0;
        while (c->at < c->end && (*c->at == '<' || *c->at == '>')) less += *c->at++ == '<';
        if (less == 2 && c->at < c->end && *c->at == '-') c->at++;
        if (less != 2 && c->at < c->end && *c->at == '&') c->at++;
        shell_lexer_skip_blanks(c);
        TRY(shell_lexer_next(s, c, &token));
        if (!token.len) FAIL(CONFIG, "%s:%d: expected a file after < or >", s->file, c->line);
        if (less == 2) {
            while (token.len && strchr("'\"\\", *token.at)) token.at++, token.len--;
            while (token.len && strchr("'\"", token.at[token.len - 1])) token.len--;
            shell_words_add(&c->heredocs, token.at, token.len);
        }
    }
}

/* NAME=( words ); comments and newlines may separate the words. */
static enum status parse_array(struct shell *s, struct shell_cursor *c, const char *name,
                               bool append, bool run)
{
    struct shell_words words = {0};
    enum status st = STATUS_OK;
    int line = c->line;
    c->at++;
    while (!st) {
        struct shell_token token;
        shell_lexer_skip_blanks(c);
        if (c->at < c->end && *c->at == '\n') {
            skip_newline(c);
            continue;
        }
        if (c->at < c->end && *c->at == ')') break;
        st = shell_lexer_next(s, c, &token);
        if (!st && !token.len) st = FAILURE(CONFIG, "%s:%d: %s=(: missing )", s->file, line, name);
        if (!st && run) st = shell_expand(s, token, c->line, &words);
    }
    if (!st) c->at++;
    if (!st && run) {
        struct shell_variable *v = shell_find_or_add(s, name);
        if (!append) shell_words_release(&v->words);
        for (size_t i = 0; i < words.count; i++)
            shell_words_add(&v->words, words.items[i], strlen(words.items[i]));
        v->is_array = true;
    }
    shell_words_release(&words);
    return st;
}

/* NAME=word, NAME+=word or NAME=( words ).  Sets *done if it is one of them. */
static enum status parse_assignment(struct shell *s, struct shell_cursor *c,
                                    struct shell_token token, bool run, bool *done)
{
    const char *equals = memchr(token.at, '=', token.len), *end = token.at + token.len;
    size_t name_len = equals ? (size_t)(equals - token.at) : 0;
    bool append = name_len > 1 && equals[-1] == '+';
    if (append) name_len--;
    *done = equals && shell_is_name(token.at, name_len);
    if (!*done) return STATUS_OK;
    char *name = heap_string(token.at, name_len);
    struct text value = {0};
    enum status st = STATUS_OK;
    if (equals + 1 == end && c->at < c->end && *c->at == '(') {
        st = parse_array(s, c, name, append, run);
    } else if (run) {
        const char *before = append ? shell_get(s, name) : NULL;
        text_adds(&value, before ? before : "");
        token = (struct shell_token){equals + 1, (size_t)(end - equals - 1)};
        st = shell_expand_unsplit(s, token, c->line, &value);
        if (!st && value.len > SHELL_MAX_VALUE)
            st = FAILURE(CONFIG, "%s:%d: %s: value longer than %d bytes", s->file, c->line, name,
                         SHELL_MAX_VALUE);
        if (!st) shell_set(s, name, value.data);
    }
    text_release(&value);
    free(name);
    return st;
}

/* A process, subshell or sourced script ends alone, with the result of its exit or return. */
static void end_process(struct shell *s, enum shell_result *result)
{
    if (s->end) *result = s->exit_result;
    s->end = SHELL_RUNS;
}

/* Follows the code that a command runs, in the current script or as another file. */
static enum status follow_script(struct shell *s, const struct shell_script *script, int line,
                                 enum shell_result *result)
{
    const char *file = s->file;
    const struct shell_words arguments = s->arguments;
    bool found = s->command.count > 0;
    if (script->file) s->file = script->file, s->arguments = script->arguments;
    enum status st = s->scripts < SHELL_MAX_SCRIPTS
                         ? STATUS_OK
                         : FAILURE(CONFIG, "%s:%d: scripts nested more than %d deep", s->file, line,
                                   SHELL_MAX_SCRIPTS);
    s->scripts++;
    if (script->is_process) s->last_result = SHELL_TRUE;
    if (!st) st = shell_parse(s, script->bytes.data, script->bytes.len, script->file ? 1 : line);
    s->scripts--;
    if (script->is_process || (script->file && s->end == SHELL_RETURNS)) end_process(s, result);
    s->file = file, s->arguments = arguments;
    if (!st && script->file && s->command.count && !found) s->command_line = line;
    return st;
}

/* exec replaces the shell; an exit in a script that it ran has ended this one already. */
static void end_at_exec(struct shell *s)
{
    s->end = SHELL_EXITS, s->exit_result = SHELL_TRUE;
    text_clear(&s->exit_place);
}

static enum status parse_simple_command(struct shell *s, struct shell_cursor *c, bool run,
                                        enum shell_result *result)
{
    struct shell_words words = {0};
    enum status st = STATUS_OK;
    int line = c->line;
    bool first = true;
    *result = SHELL_TRUE;
    while (!st) {
        struct shell_token token;
        bool done = false;
        st = skip_redirections(s, c);
        shell_lexer_skip_blanks(c);
        if (!st) st = shell_lexer_next(s, c, &token);
        if (st || !token.len) break;
        if (first) st = parse_assignment(s, c, token, run, &done);
        if (done || st) continue;
        first = false;
        bool declares = words.count && !strcmp(words.items[0], "export");
        if (run && declares) { /* the value after = is not split */
            struct text one = {0};
            st = shell_expand_unsplit(s, token, c->line, &one);
            if (!st) shell_words_add(&words, one.data, one.len);
            text_release(&one);
        } else if (run) {
            st = shell_expand(s, token, c->line, &words);
        }
    }
    bool function = first ? false : c->at + 1 < c->end && *c->at == '(';
    if (!st && function) {
        c->at++;
        shell_lexer_skip_blanks(c);
        if (c->at < c->end && *c->at == ')') c->at++;
        skip_separators(c);
        shell_add_note(s, line, "functions are not followed");
        st = parse_command(s, c, false, result);
    } else if (!st && run && words.count) {
        struct shell_script script = {0};
        st = shell_command_run(s, &words, line, result, &script);
        if (!st && script.bytes.data) st = follow_script(s, &script, line, result);
        bool is_background = is_single(c, '&');
        if (!st && script.is_exec && !s->end && !is_background) end_at_exec(s);
        shell_command_release(&script);
    }
    shell_words_release(&words);
    return st;
}

/* [[ ... ]] with &&, || and !; with parentheses the result is unknown. */
static enum status parse_condition(struct shell *s, struct shell_cursor *c, bool run,
                                   enum shell_result *result)
{
    struct shell_words words = {0};
    enum status st = STATUS_OK;
    int line = c->line;
    bool brackets = false;
    c->at += 2;
    while (!st) {
        const char *op = NULL;
        struct shell_token token;
        shell_lexer_skip_blanks(c);
        if (c->at < c->end && *c->at == '\n') {
            skip_newline(c);
            continue;
        }
        if (next_is(c, "]]")) break;
        st = shell_lexer_next(s, c, &token);
        if (st) break;
        if (token.len && run) {
            struct text one = {0};
            st = shell_expand_unsplit(s, token, c->line, &one);
            if (!st) shell_words_add(&words, one.data, one.len);
            text_release(&one);
        } else if (!token.len && c->at < c->end) {
            bool twice = c->at + 1 < c->end && c->at[1] == *c->at;
            if (*c->at == '&' && twice) op = "-a";
            if (*c->at == '|' && twice) op = "-o";
            if (*c->at == '<' || *c->at == '>') op = *c->at == '<' ? "<" : ">";
            brackets |= !op;
            c->at += op && *op == '-' ? 2 : 1;
            if (op) shell_words_add(&words, op, strlen(op));
        } else if (!token.len) {
            st = FAILURE(CONFIG, "%s:%d: [[: missing ]]", s->file, line);
        }
    }
    if (!st) c->at += 2;
    *result = brackets ? SHELL_UNKNOWN : SHELL_FALSE;
    if (!st && run && !brackets) st = shell_condition_evaluate(s, words, line, result);
    shell_words_release(&words);
    return st;
}

static enum status parse_if(struct shell *s, struct shell_cursor *c, bool run,
                            enum shell_result *result)
{
    bool open = run; /* no branch has been taken yet */
    enum shell_result skipped;
    *result = SHELL_TRUE;
    for (;;) {
        enum shell_result holds = SHELL_FALSE;
        int line = c->line;
        TRY(parse_list(s, c, open, &holds));
        if (open && holds == SHELL_UNKNOWN)
            shell_add_note(s, line,
                           "this condition is known only when the script runs; assumed false");
        TRY(expect_word(s, c, "then"));
        bool taken = open && holds == SHELL_TRUE;
        TRY(parse_list(s, c, taken, taken ? result : &skipped));
        if (holds == SHELL_TRUE) open = false;
        skip_separators(c);
        if (!next_is(c, "elif")) break;
        c->at += 4;
    }
    if (next_is(c, "else")) {
        c->at += 4;
        TRY(parse_list(s, c, open, open ? result : &skipped));
    }
    return expect_word(s, c, "fi");
}

static enum status parse_for(struct shell *s, struct shell_cursor *c, bool run,
                             enum shell_result *result)
{
    struct shell_token token;
    enum shell_result skipped;
    struct shell_words words = {0};
    enum status st = STATUS_OK;
    char *name = NULL;
    shell_lexer_skip_blanks(c);
    TRY(shell_lexer_next(s, c, &token));
    if (!shell_is_name(token.at, token.len))
        FAIL(CONFIG, "%s:%d: for: expected a name", s->file, c->line);
    name = heap_string(token.at, token.len);
    if (next_is(c, "in")) {
        c->at += 2;
        while (!st) {
            shell_lexer_skip_blanks(c);
            st = shell_lexer_next(s, c, &token);
            if (st || !token.len) break;
            if (run) st = shell_expand(s, token, c->line, &words);
        }
    }
    if (!st) st = expect_word(s, c, "do");
    shell_words_release(&c->heredocs);
    const struct shell_cursor body = *c;
    s->loops++;
    for (size_t i = 0; !st && (i < words.count || !i); i++) {
        bool here = run && i < words.count;
        shell_words_release(&c->heredocs);
        *c = body;
        if (here) shell_set(s, name, words.items[i]);
        st = parse_list(s, c, here, here ? result : &skipped);
        bool leave = s->jump == SHELL_BREAK;
        if (here) s->jump = SHELL_NO_JUMP;
        if (leave) break;
    }
    s->loops--;
    if (!st) st = expect_word(s, c, "done");
    shell_words_release(&words);
    free(name);
    return st;
}

static enum status parse_case(struct shell *s, struct shell_cursor *c, bool run,
                              enum shell_result *result)
{
    struct shell_token token;
    enum shell_result skipped;
    struct text value = {0};
    enum status st;
    int line = c->line;
    shell_lexer_skip_blanks(c);
    TRY_OUT(shell_lexer_next(s, c, &token));
    if (run) TRY_OUT(shell_expand_unsplit(s, token, c->line, &value));
    if (run && shell_is_unknown(value.data)) {
        shell_add_note(s, line,
                       "the value of this case is known only when the script runs; skipped");
        run = false;
    }
    TRY_OUT(expect_word(s, c, "in"));
    for (bool taken = false;;) {
        bool fits = false, here;
        skip_separators(c);
        if (next_is(c, "esac") || c->at >= c->end) break;
        if (*c->at == '(') c->at++;
        for (;;) {
            struct text pattern = {0};
            shell_lexer_skip_blanks(c);
            TRY_OUT(shell_lexer_next(s, c, &token));
            if (run) st = shell_expand_unsplit(s, token, c->line, &pattern);
            if (!st && run) fits |= shell_condition_match(pattern.data, value.data);
            text_release(&pattern);
            if (st) goto out;
            shell_lexer_skip_blanks(c);
            if (c->at < c->end && *c->at == '|')
                c->at++;
            else
                break;
        }
        if (c->at >= c->end || *c->at != ')')
            FAIL_OUT(CONFIG, "%s:%d: case: expected a pattern and )", s->file, c->line);
        c->at++;
        here = run && fits && !taken;
        TRY_OUT(parse_list(s, c, here, here ? result : &skipped));
        taken |= fits;
        if (c->end - c->at > 1 && c->at[0] == ';' && c->at[1] == ';') c->at += 2;
    }
    st = expect_word(s, c, "esac");
out:
    text_release(&value);
    return st;
}

static enum status parse_compound_command(struct shell *s, struct shell_cursor *c, bool run,
                                          enum shell_result *result)
{
    int line = c->line;
    *result = SHELL_TRUE;
    if (next_is(c, "!")) {
        c->at++;
        TRY(parse_command(s, c, run, result));
        if (*result != SHELL_UNKNOWN) *result = *result == SHELL_TRUE ? SHELL_FALSE : SHELL_TRUE;
        return STATUS_OK;
    }
    if (next_is(c, "[[")) {
        TRY(parse_condition(s, c, run, result));
    } else if (next_is(c, "if")) {
        c->at += 2;
        TRY(parse_if(s, c, run, result));
    } else if (next_is(c, "for")) {
        c->at += 3;
        TRY(parse_for(s, c, run, result));
    } else if (next_is(c, "case")) {
        c->at += 4;
        TRY(parse_case(s, c, run, result));
    } else if (next_is(c, "while") || next_is(c, "until")) {
        c->at += 5;
        if (run) shell_add_note(s, line, "while and until loops are not followed");
        TRY(parse_list(s, c, false, result));
        TRY(expect_word(s, c, "do"));
        TRY(parse_list(s, c, false, result));
        TRY(expect_word(s, c, "done"));
    } else if (next_is(c, "{")) {
        c->at++;
        TRY(parse_list(s, c, run, result));
        TRY(expect_word(s, c, "}"));
    } else if (next_is(c, "function")) {
        struct shell_token token;
        c->at += 8;
        shell_lexer_skip_blanks(c);
        TRY(shell_lexer_next(s, c, &token));
        if (c->at < c->end && *c->at == '(') c->at++;
        if (c->at < c->end && *c->at == ')') c->at++;
        skip_separators(c);
        shell_add_note(s, line, "functions are not followed");
        return parse_command(s, c, false, result);
    } else if (c->at < c->end && *c->at == '(') {
        c->at++;
        TRY(parse_list(s, c, run, result));
        if (c->at >= c->end || *c->at != ')') FAIL(CONFIG, "%s:%d: (: missing )", s->file, line);
        c->at++;
        if (run) end_process(s, result), s->jump = SHELL_NO_JUMP;
    } else {
        return parse_simple_command(s, c, run, result);
    }
    return skip_redirections(s, c);
}

static enum status parse_command(struct shell *s, struct shell_cursor *c, bool run,
                                 enum shell_result *result)
{
    if (++s->depth > SHELL_MAX_DEPTH) FAIL(CONFIG, "%s:%d: nested too deeply", s->file, c->line);
    TRY(parse_compound_command(s, c, run, result));
    s->depth--;
    return STATUS_OK;
}

/* Only the first command of a | b has effects here, but an exit or break in it ends only its
 * subshell; the exit status of the last is unknown and taken as success. */
static enum status parse_pipeline(struct shell *s, struct shell_cursor *c, bool run,
                                  enum shell_result *result)
{
    run = run && !s->end && !s->jump;
    TRY(parse_command(s, c, run, result));
    for (;;) {
        shell_lexer_skip_blanks(c);
        if (!is_single(c, '|')) break;
        c->at += c->at + 1 < c->end && c->at[1] == '&' ? 2 : 1;
        if (run) s->end = SHELL_RUNS, s->jump = SHELL_NO_JUMP;
        skip_separators(c);
        TRY(parse_command(s, c, false, result));
        *result = SHELL_TRUE;
    }
    if (run)
        s->last_result = *result;
    else
        *result = SHELL_TRUE; /* as after a break */
    return STATUS_OK;
}

static bool at_list_end(struct shell_cursor *c)
{
    static const char *const words[] = {"then", "elif", "else", "fi", "do", "done", "esac", "}"};
    if (c->at >= c->end || *c->at == ')') return true;
    if (c->end - c->at > 1 && c->at[0] == ';' && c->at[1] == ';') return true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (next_is(c, words[i])) return true;
    return false;
}

static enum status parse_list(struct shell *s, struct shell_cursor *c, bool run,
                              enum shell_result *result)
{
    if (++s->depth > SHELL_MAX_DEPTH) FAIL(CONFIG, "%s:%d: nested too deeply", s->file, c->line);
    *result = SHELL_TRUE;
    for (skip_separators(c); !at_list_end(c); skip_separators(c)) {
        const char *from = c->at;
        TRY(shell_count_step(s, c->line));
        TRY(parse_pipeline(s, c, run, result));
        if (c->at == from)
            FAIL(CONFIG, "%s:%d: syntax error at \"%.*s\"", s->file, c->line,
                 (int)(c->end - c->at > 20 ? 20 : c->end - c->at), c->at);
        for (;;) {
            shell_lexer_skip_blanks(c);
            bool two = c->end - c->at > 1 && c->at[1] == *c->at;
            if (!two || (*c->at != '&' && *c->at != '|')) break;
            enum shell_result wanted = *c->at == '&' ? SHELL_TRUE : SHELL_FALSE, next;
            c->at += 2;
            while (shell_lexer_skip_blanks(c), c->at < c->end && *c->at == '\n') skip_newline(c);
            TRY(parse_pipeline(s, c, run && *result == wanted, &next));
            if (*result == wanted) *result = next;
        }
        if (run && is_single(c, '&')) *result = s->last_result = SHELL_TRUE; /* in the background */
    }
    s->depth--;
    return STATUS_OK;
}

enum status shell_parse(struct shell *s, const char *bytes, size_t len, int line)
{
    struct shell_cursor c = {.at = bytes ? bytes : "", .line = line};
    enum shell_result result;
    c.end = c.at + len;
    const char *nul = memchr(c.at, 0, len);
    if (nul) FAIL(CONFIG, "%s:%d: not a script: contains NUL", s->file, line);
    enum status st = parse_list(s, &c, true, &result);
    if (!st && c.at < c.end)
        st = FAILURE(CONFIG, "%s:%d: unexpected \"%.*s\"", s->file, c.line,
                     (int)(c.end - c.at > 20 ? 20 : c.end - c.at), c.at);
    shell_words_release(&c.heredocs);
    return st;
}
