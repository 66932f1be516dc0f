/* shell_run.c -- a shell's variables, and the commands that change them or start a training. */
// SPDX-License-Identifier: Apache-2.0
#include "config/import/shell_state.h"

#include <stdlib.h>
#include <string.h>

void shell_words_add(struct shell_words *w, const char *bytes, size_t len)
{
    if (!(w->count & (w->count - 1))) /* none, or all of a power of two: twice as many */
        w->items = heap_grow(w->items, w->count ? 2 * w->count : 1, sizeof *w->items);
    w->items[w->count++] = heap_string(bytes, len);
}

void shell_words_release(struct shell_words *w)
{
    for (size_t i = 0; i < w->count; i++) free(w->items[i]);
    free(w->items);
    *w = (struct shell_words){0};
}

void shell_init(struct shell *s, const char *file, struct shell_files files)
{
    *s = (struct shell){.file = file, .files = files, .left = SHELL_STEPS};
}

void shell_release(struct shell *s)
{
    for (size_t i = 0; i < s->num_variables; i++) {
        free(s->variables[i].name);
        shell_words_release(&s->variables[i].words);
    }
    for (size_t i = 0; i < s->num_notes; i++) free(s->notes[i].text);
    shell_words_release(&s->arguments), shell_words_release(&s->command);
    shell_words_release(&s->launcher);
    free(s->variables), free(s->notes);
    text_release(&s->said);
    *s = (struct shell){0};
}

struct shell_variable *shell_find(const struct shell *s, const char *name)
{
    for (size_t i = 0; i < s->num_variables; i++)
        if (!strcmp(s->variables[i].name, name)) {
            s->variables[i].used = true;
            return &s->variables[i];
        }
    return NULL;
}

struct shell_variable *shell_make(struct shell *s, const char *name)
{
    struct shell_variable *v = shell_find(s, name);
    if (v) return v;
    s->variables = heap_grow(s->variables, s->num_variables + 1, sizeof *s->variables);
    v = &s->variables[s->num_variables++];
    *v = (struct shell_variable){.name = heap_string(name, strlen(name))};
    return v;
}

void shell_set(struct shell *s, const char *name, const char *value)
{
    char *kept = heap_string(value, strlen(value)); /* it may be the variable's own */
    struct shell_variable *v = shell_make(s, name);
    if (v->given && shell_is_unknown(kept)) {
        free(kept);
        return;
    }
    shell_words_release(&v->words);
    shell_words_add(&v->words, kept, strlen(kept));
    v->array = false;
    free(kept);
}

bool shell_give(struct shell *s, const char *name, const char *value)
{
    if (!shell_is_name(name, strlen(name))) return false;
    shell_set(s, name, value);
    struct shell_variable *v = shell_find(s, name);
    v->given = true, v->used = false;
    return true;
}

const char *shell_unused(const struct shell *s, const char **nearest)
{
    for (size_t i = 0; i < s->num_variables; i++) {
        const struct shell_variable *v = &s->variables[i];
        size_t best = strlen(v->name) / 2 + 1;
        if (!v->given || v->used) continue;
        *nearest = NULL;
        for (size_t k = 0; k < s->num_variables; k++) {
            const char *name = s->variables[k].name;
            if (k != i && text_is_closer(name, v->name, &best)) *nearest = name;
        }
        return v->name;
    }
    return NULL;
}

static void unset(struct shell *s, const char *name)
{
    struct shell_variable *v = shell_find(s, name);
    if (!v) return;
    free(v->name);
    shell_words_release(&v->words);
    *v = s->variables[--s->num_variables];
}

const char *shell_get(const struct shell *s, const char *name)
{
    const struct shell_variable *v = shell_find(s, name);
    return v && v->words.count ? v->words.items[0] : NULL;
}

void shell_note(struct shell *s, int line, const char *text)
{
    if (s->num_notes >= 64) return;
    for (size_t i = 0; i < s->num_notes; i++)
        if (s->notes[i].line == line && !strcmp(s->notes[i].text, text)) return;
    s->notes = heap_grow(s->notes, s->num_notes + 1, sizeof *s->notes);
    s->notes[s->num_notes++] = (struct shell_note){line, heap_string(text, strlen(text))};
}

enum status shell_step(struct shell *s, int line)
{
    if (--s->left < 0) FAIL(CONFIG, "%s:%d: more than %d steps", s->file, line, SHELL_STEPS);
    return STATUS_OK;
}

static enum status nested(struct shell *s, const char *bytes, size_t len, int line)
{
    if (s->scripts == SHELL_SCRIPTS)
        FAIL(CONFIG, "%s:%d: scripts in scripts, more than %d deep", s->file, line, SHELL_SCRIPTS);
    s->scripts++;
    enum status st = shell_read(s, bytes, len, line);
    s->scripts--;
    return st;
}

/* bash FILE ARGUMENTS: read where it can be had. */
static enum status script(struct shell *s, const struct shell_words *w, size_t at, int line)
{
    struct text bytes = {0}, note = {0};
    if (!s->files.open || s->files.open(s->files.context, w->items[at], &bytes)) {
        text_addf(&note, "%.200s is not read: it is not beside this script", w->items[at]);
        shell_note(s, line, note.data);
        text_release(&note), text_release(&bytes);
        return STATUS_OK;
    }
    struct shell_words before = s->arguments, own = {0};
    const char *file = s->file;
    char *name = heap_string(w->items[at], strlen(w->items[at]));
    for (size_t i = at + 1; i < w->count; i++) {
        const char *word = w->items[i], *equals = strchr(word, '=');
        if (equals && shell_is_name(word, (size_t)(equals - word))) {
            char *key = heap_string(word, (size_t)(equals - word));
            shell_set(s, key, equals + 1); /* their scripts export such arguments */
            free(key);
        } else {
            shell_words_add(&own, word, strlen(word));
        }
    }
    bool known = s->command.count > 0;
    s->arguments = own, s->file = name;
    enum status st = nested(s, bytes.data, bytes.len, 1);
    if (s->command.count && !known && !st) s->command_line = line;
    s->file = file;
    shell_words_release(&s->arguments);
    s->arguments = before;
    text_release(&bytes);
    free(name);
    return st;
}

static void assign_word(struct shell *s, const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals || !shell_is_name(word, (size_t)(equals - word))) return;
    char *key = heap_string(word, (size_t)(equals - word));
    shell_set(s, key, equals + 1);
    free(key);
}

/* -e KEY=VALUE of a container, then bash -c TEXT or bash FILE, or a training's own words. */
static enum status start(struct shell *s, const struct shell_words *w, int line)
{
    for (size_t i = 0; i < w->count; i++) {
        const char *slash = strrchr(w->items[i], '/'), *name = slash ? slash + 1 : w->items[i];
        size_t len = strlen(name);
        bool more = i + 1 < w->count;
        if (more && !strcmp(name, "-e")) assign_word(s, w->items[i + 1]);
        if (more && (!strcmp(name, "bash") || !strcmp(name, "sh"))) {
            if (strcmp(w->items[i + 1], "-c")) return script(s, w, i + 1, line);
            if (i + 2 == w->count) return STATUS_OK;
            return nested(s, w->items[i + 2], strlen(w->items[i + 2]), line);
        }
        if (len < 4 || strcmp(name + len - 3, ".py") || strncmp(name, "pretrain", 8)) continue;
        if (s->command.count) {
            shell_note(s, line, "a second training is started here: the first one is taken");
            return STATUS_OK;
        }
        for (size_t k = 0; k < i; k++)
            shell_words_add(&s->launcher, w->items[k], strlen(w->items[k]));
        for (size_t k = i + 1; k < w->count; k++)
            shell_words_add(&s->command, w->items[k], strlen(w->items[k]));
        s->command_line = line;
        if (!s->command.count) shell_words_add(&s->command, "", 0);
        return STATUS_OK;
    }
    return STATUS_OK;
}

enum status shell_run(struct shell *s, const struct shell_words *w, int line,
                      enum shell_truth *truth)
{
    static const char *const exports[] = {"export", "declare", "local", "readonly", "typeset"};
    const char *name = w->items[0];
    struct text joined = {0};
    enum status st = STATUS_OK;
    *truth = SHELL_YES;
    for (size_t i = 0; i < sizeof exports / sizeof *exports; i++)
        for (size_t k = 1; k < w->count && !strcmp(name, exports[i]); k++)
            assign_word(s, w->items[k]);
    if (!strcmp(name, "[") || !strcmp(name, "test")) {
        bool bracket = *name == '[';
        if (bracket && strcmp(w->items[w->count - 1], "]"))
            FAIL(CONFIG, "%s:%d: [ without its ]", s->file, line);
        return shell_test(s, w, 1, w->count - bracket, line, truth);
    }
    for (size_t i = 1; i < w->count; i++) text_addf(&joined, "%s%s", i > 1 ? " " : "", w->items[i]);
    text_adds(&joined, "");
    if (!strcmp(name, "unset")) {
        for (size_t i = 1; i < w->count; i++) unset(s, w->items[i]);
    } else if (!strcmp(name, "eval")) {
        st = nested(s, joined.data, joined.len, line);
    } else if (!strcmp(name, "exit") || !strcmp(name, "return")) {
        s->stopped = true, s->stopped_at = line;
    } else if (!strcmp(name, "break") || !strcmp(name, "continue")) {
        if (s->loops) s->broken = *name == 'b' ? SHELL_BREAK : SHELL_CONTINUE;
    } else if (!strcmp(name, "echo")) {
        text_clear(&s->said);
        text_add(&s->said, joined.data, joined.len);
    } else if (!strcmp(name, "false")) {
        *truth = SHELL_NO;
    } else if ((!strcmp(name, "source") || !strcmp(name, ".")) && w->count > 1) {
        st = script(s, w, 1, line);
    } else {
        st = start(s, w, line);
    }
    text_release(&joined);
    return st;
}
