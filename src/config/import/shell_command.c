// SPDX-License-Identifier: Apache-2.0
#include "config/import/shell_command.h"

#include <stdlib.h>
#include <string.h>

void shell_command_release(struct shell_script *script)
{
    text_release(&script->bytes);
    free(script->file);
    shell_words_release(&script->arguments);
    *script = (struct shell_script){0};
}

/* Sets a variable if the word is NAME=VALUE. */
static bool assign_word(struct shell *s, const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals || !shell_is_name(word, (size_t)(equals - word))) return false;
    char *key = heap_string(word, (size_t)(equals - word));
    shell_set(s, key, equals + 1);
    free(key);
    return true;
}

/* bash FILE ARGUMENTS: followed if the file can be read.  NAME=VALUE arguments set variables, since
 * the scripts of ROCm's examples export them. */
static void open_script(struct shell *s, const struct shell_words *w, size_t at, int line,
                        struct shell_script *script)
{
    const char *file = w->items[at];
    if (!s->files.open || s->files.open(s->files.context, file, &script->bytes)) {
        struct text note = {0};
        text_addf(&note, "%.200s is not followed: not found in the folder of this script", file);
        shell_add_note(s, line, note.data);
        text_release(&note), text_release(&script->bytes);
        return;
    }
    text_adds(&script->bytes, "");
    script->file = heap_strdup(file);
    for (size_t i = at + 1; i < w->count; i++)
        if (!assign_word(s, w->items[i]))
            shell_words_add(&script->arguments, w->items[i], strlen(w->items[i]));
}

/* A command line that starts training, or bash -c TEXT or bash FILE; a container's -e KEY=VALUE
 * sets a variable. */
static void start_program(struct shell *s, const struct shell_words *w, int line,
                          struct shell_script *script)
{
    bool accelerated = false;
    for (size_t i = 0; i < w->count; i++) {
        const char *slash = strrchr(w->items[i], '/'), *name = slash ? slash + 1 : w->items[i];
        size_t len = strlen(name);
        bool more = i + 1 < w->count;
        if (more && !strcmp(name, "-e")) assign_word(s, w->items[i + 1]);
        if (more && (!strcmp(name, "bash") || !strcmp(name, "sh"))) {
            if (strcmp(w->items[i + 1], "-c"))
                open_script(s, w, i + 1, line, script);
            else if (i + 2 < w->count)
                text_adds(&script->bytes, w->items[i + 2]);
            script->is_process = !script->is_exec;
            return;
        }
        if (more && !strcmp(name, "accelerate") && !strcmp(w->items[i + 1], "launch"))
            accelerated = true;
        if (len < 4 || strcmp(name + len - 3, ".py")) continue;
        if (!accelerated && strncmp(name, "pretrain", 8)) continue;
        if (s->command.count) {
            shell_add_note(s, line, "starts training a second time; only the first is imported");
            return;
        }
        for (size_t k = 0; k < i; k++)
            shell_words_add(&s->launcher, w->items[k], strlen(w->items[k]));
        for (size_t k = i + 1; k < w->count; k++)
            shell_words_add(&s->command, w->items[k], strlen(w->items[k]));
        s->command_line = line;
        if (accelerated) s->accelerated = heap_strdup(w->items[i]);
        if (!s->command.count) shell_words_add(&s->command, "", 0);
        return;
    }
}

static enum shell_result result_of_status(const char *status)
{
    char *end;
    long value = strtol(status, &end, 10);
    if (end == status || *end) return SHELL_UNKNOWN;
    return value & 255 ? SHELL_FALSE : SHELL_TRUE;
}

/* exit or return STATUS; without one, that of the command before. */
static void end_script(struct shell *s, const struct shell_words *w, int line)
{
    s->end = *w->items[0] == 'e' ? SHELL_EXITS : SHELL_RETURNS;
    s->exit_result = w->count > 1 ? result_of_status(w->items[1]) : s->last_result;
    text_clear(&s->exit_place);
    text_addf(&s->exit_place, "%s:%d", s->file, line);
}

enum status shell_command_run(struct shell *s, const struct shell_words *w, int line,
                              enum shell_result *result, struct shell_script *script)
{
    static const char *const exports[] = {"export", "declare", "local", "readonly", "typeset"};
    const char *name = w->items[0];
    struct text joined = {0};
    *result = SHELL_TRUE;
    for (size_t i = 0; i < sizeof exports / sizeof *exports; i++)
        for (size_t k = 1; k < w->count && !strcmp(name, exports[i]); k++)
            if (s->num_variables <= SHELL_MAX_VARIABLES) assign_word(s, w->items[k]);
    if (!strcmp(name, "[") || !strcmp(name, "test")) {
        bool bracket = *name == '[';
        if (bracket && strcmp(w->items[w->count - 1], "]"))
            FAIL(CONFIG, "%s:%d: [: missing ]", s->file, line);
        return shell_condition_evaluate(
            s, (struct shell_words){w->items + 1, w->count - 1 - bracket}, line, result);
    }
    for (size_t i = 1; i < w->count; i++) text_addf(&joined, "%s%s", i > 1 ? " " : "", w->items[i]);
    text_adds(&joined, "");
    if (!strcmp(name, "unset")) {
        for (size_t i = 1; i < w->count; i++) shell_unset(s, w->items[i]);
    } else if (!strcmp(name, "eval")) {
        text_adds(&script->bytes, joined.data);
    } else if (!strcmp(name, "exit") || !strcmp(name, "return")) {
        end_script(s, w, line);
    } else if (!strcmp(name, "break") || !strcmp(name, "continue")) {
        if (s->loops) s->jump = *name == 'b' ? SHELL_BREAK : SHELL_CONTINUE;
    } else if (!strcmp(name, "echo")) {
        text_clear(&s->last_echo);
        text_add(&s->last_echo, joined.data, joined.len);
    } else if (!strcmp(name, "false")) {
        *result = SHELL_FALSE;
    } else if ((!strcmp(name, "source") || !strcmp(name, ".")) && w->count > 1) {
        open_script(s, w, 1, line, script);
    } else {
        /* exec {fd}>FILE only opens it */
        script->is_exec = !strcmp(name, "exec") && w->count > 1 && w->items[1][0] != '{';
        start_program(s, w, line, script);
    }
    text_release(&joined);
    return STATUS_OK;
}
