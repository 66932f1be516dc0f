// SPDX-License-Identifier: Apache-2.0
#include "config/import/shell.h"

#include "base/closest.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void shell_words_add(struct shell_words *w, const char *bytes, size_t len)
{
    if (!(w->count & (w->count - 1))) /* full at 0 and at powers of two: double */
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
    *s = (struct shell){
        .file = file, .files = files, .last_result = SHELL_TRUE, .steps_left = SHELL_MAX_STEPS};
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
    free(s->accelerated);
    free(s->variables), free(s->notes);
    text_release(&s->last_echo), text_release(&s->exit_place);
    *s = (struct shell){0};
}

struct shell_variable *shell_find(const struct shell *s, const char *name)
{
    for (size_t i = 0; i < s->num_variables; i++)
        if (!strcmp(s->variables[i].name, name)) {
            s->variables[i].is_used = true;
            return &s->variables[i];
        }
    return NULL;
}

struct shell_variable *shell_find_or_add(struct shell *s, const char *name)
{
    struct shell_variable *v = shell_find(s, name);
    if (v) return v;
    s->variables = heap_grow(s->variables, s->num_variables + 1, sizeof *s->variables);
    v = &s->variables[s->num_variables++];
    *v = (struct shell_variable){.name = heap_strdup(name)};
    return v;
}

void shell_set(struct shell *s, const char *name, const char *value)
{
    char *kept = heap_strdup(value); /* it may point into the variable */
    struct shell_variable *v = shell_find_or_add(s, name);
    if (v->is_given && shell_is_unknown(kept)) {
        free(kept);
        return;
    }
    shell_words_release(&v->words);
    shell_words_add(&v->words, kept, strlen(kept));
    v->is_array = false;
    free(kept);
}

bool shell_give(struct shell *s, const char *name, const char *value)
{
    if (!shell_is_name(name, strlen(name))) return false;
    shell_set(s, name, value);
    struct shell_variable *v = shell_find(s, name);
    v->is_given = true, v->is_used = false;
    return true;
}

const char *shell_unused(const struct shell *s, const char **similar)
{
    for (size_t i = 0; i < s->num_variables; i++) {
        const struct shell_variable *v = &s->variables[i];
        if (!v->is_given || v->is_used) continue;
        struct closest c = closest_to(v->name);
        for (size_t k = 0; k < s->num_variables; k++) {
            if (k != i) closest_offer(&c, s->variables[k].name);
        }
        *similar = c.name;
        return v->name;
    }
    return NULL;
}

void shell_unset(struct shell *s, const char *name)
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

void shell_add_note(struct shell *s, int line, const char *text)
{
    if (s->num_notes >= 64) return;
    for (size_t i = 0; i < s->num_notes; i++)
        if (s->notes[i].line == line && !strcmp(s->notes[i].text, text)) return;
    s->notes = heap_grow(s->notes, s->num_notes + 1, sizeof *s->notes);
    s->notes[s->num_notes++] = (struct shell_note){line, heap_strdup(text)};
}

enum status shell_count_step(struct shell *s, int line)
{
    if (--s->steps_left < 0)
        FAIL(CONFIG, "%s:%d: more than %d steps", s->file, line, SHELL_MAX_STEPS);
    if (s->num_variables > SHELL_MAX_VARIABLES)
        FAIL(CONFIG, "%s:%d: more than %d variables", s->file, line, SHELL_MAX_VARIABLES);
    return STATUS_OK;
}

bool shell_is_name(const char *at, size_t len)
{
    if (!len || isdigit((unsigned char)*at)) return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)at[i]) && at[i] != '_') return false;
    return true;
}

bool shell_is_unknown(const char *value) { return strstr(value, "$(") || strstr(value, "${"); }

bool shell_is_system_variable(const char *name)
{
    static const char *const names[] = {"HOME",   "PWD",      "USER",   "LOGNAME",
                                        "TMPDIR", "HOSTNAME", "RANDOM", "BASH_SOURCE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name)) return true;
    return !strncmp(name, "SLURM_", 6);
}
