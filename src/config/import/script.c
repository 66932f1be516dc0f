/* import_script.c -- scripts that start pretrain_gpt.py. */
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"
#include "config/import/import.h"
#include "config/import/rules.h"
#include "config/import/shell.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, MOST_RANKS = 1 << 20 };

/* A script that another starts: the one of that name beside it, wherever it says. */
static enum status open_beside(const void *context, const char *path, struct text *bytes)
{
    const char *first = context, *slash = strrchr(first, '/'), *name = strrchr(path, '/');
    uint64_t size;
    char *folder = heap_string(first, slash ? (size_t)(slash - first) : 0);
    char *beside = file_join(slash ? folder : ".", name ? name + 1 : path);
    enum status st = file_size(beside, &size); /* only of what is a file */
    if (!st) st = file_read(beside, MOST_BYTES, bytes);
    free(folder), free(beside);
    return st;
}

/* torchrun's ranks, where they are numbers. */
static int64_t count_ranks(const struct shell_words *w)
{
    int64_t nodes = 1, ranks = 0;
    for (size_t i = 0; i < w->count; i++) {
        const char *word = w->items[i], *equals = strchr(word, '=');
        const char *value = equals ? equals + 1 : i + 1 < w->count ? w->items[i + 1] : "";
        size_t len = equals ? (size_t)(equals - word) : strlen(word);
        char *end;
        long long n = strtoll(value, &end, 10);
        bool number = end != value && !*end && n > 0 && n <= MOST_RANKS;
        if ((len == 16 && !strncmp(word, "--nproc_per_node", len)) ||
            (len == 16 && !strncmp(word, "--nproc-per-node", len)))
            ranks = number ? n : 0;
        if (len == 8 && !strncmp(word, "--nnodes", len)) nodes = number ? n : 0;
    }
    return nodes * ranks <= MOST_RANKS ? nodes * ranks : 0;
}

/* section.key=value of ours, not a flag's or a path's */
static bool is_setting(const char *word)
{
    const char *equals = strchr(word, '='), *dot = strchr(word, '.'), *slash = strchr(word, '/');
    return strncmp(word, "--", 2) && equals && dot && dot < equals && dot != word &&
           !(slash && slash < equals);
}

/* Numbers that are not known are told with what would make them known. */
static enum status check_known(const struct shell *s)
{
    for (size_t i = 1; i < s->command.count; i++) {
        const char *flag = s->command.items[i - 1], *word = s->command.items[i];
        if (strncmp(flag, "--", 2) || !shell_is_unknown(word)) continue;
        bool counts = strstr(flag, "-size") || strstr(flag, "num-") || strstr(flag, "-iters") ||
                      strstr(flag, "-samples") || strstr(flag, "-length") || strstr(flag, "-lr");
        if (counts)
            FAIL(CONFIG,
                 "%s:%d: %s %s: only running the script would tell; give the variables it is made "
                 "of as VAR=VALUE",
                 s->file, s->command_line, flag, word);
    }
    return STATUS_OK;
}

static enum status read_script(struct shell *s, const char *bytes, size_t len,
                               const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *equals = strchr(words[i], '=');
        if (is_setting(words[i])) continue;
        char *name = heap_string(words[i], equals ? (size_t)(equals - words[i]) : 0);
        if (equals && shell_give(s, name, equals + 1))
            ;
        else
            shell_words_add(&s->arguments, words[i], strlen(words[i]));
        free(name);
    }
    if (!text_is_utf8(bytes, len)) FAIL(CONFIG, "%s: not UTF-8: not a script", s->file);
    TRY(shell_read(s, bytes, len, 1));
    if (!s->command.count && s->stopped_at)
        FAIL(CONFIG, "%s:%d: with these variables the script ends here%s%.300s", s->file,
             s->stopped_at, s->said.len ? ": " : "", s->said.len ? s->said.data : "");
    if (!s->command.count)
        FAIL(CONFIG,
             "%s: no pretrain_gpt.py is started in it (`llamero prepare` does what "
             "preprocess_data.py does)",
             s->file);
    const char *nearest, *unused = shell_unused(s, &nearest);
    if (unused)
        FAIL(CONFIG, "command line: %s: the script reads no such variable%s%s%s", unused,
             nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    return check_known(s);
}

/* What ROCm's scripts say to a library by its environment, and not by a flag. */
static enum status take_tuning(struct import *im, const struct shell *s)
{
    const char *value = shell_get(s, "GEMM_TUNING");
    if (!value || (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)) return STATUS_OK;
    import_add_item(im, "GEMM_TUNING", 0, false, &value, 1);
    return import_set(im, import_get(im, "GEMM_TUNING"), "device.tune_gemm",
                      value[0] == '1' ? "true" : "false",
                      "the ways are timed before the first step, and all have the same bits");
}

enum status import_script(struct import *im, const char *bytes, size_t len, const char *file,
                          const char *const *words, size_t count)
{
    struct shell s;
    shell_init(&s, file, (struct shell_files){open_beside, file});
    enum status st = import_init(im, file, "Megatron-LM");
    if (!st) st = read_script(&s, bytes ? bytes : "", len, words, count);
    if (!st) {
        im->num_ranks = count_ranks(&s.launcher);
        const char *const *flags = (const char *const *)s.command.items;
        st = import_megatron(im, flags, s.command.count, s.command_line);
        if (!st) st = take_tuning(im, &s);
    }
    for (size_t i = 0; i < s.num_notes && !st; i++) {
        struct text note = {0};
        text_addf(&note, "line %d of the script: %s", s.notes[i].line, s.notes[i].text);
        import_note(im, IMPORT_NONE, NULL, note.data);
        text_release(&note);
    }
    for (size_t i = 0; i < count && !st; i++)
        if (is_setting(words[i])) st = import_setting(im, words[i]);
    shell_release(&s);
    return st;
}

enum status import_flags(struct import *im, const char *const *words, size_t count)
{
    const char **flags = heap((count + 1) * sizeof *flags);
    size_t num = 0;
    for (size_t i = 0; i < count; i++)
        if (!is_setting(words[i])) flags[num++] = words[i];
    enum status st = import_init(im, "the command line", "Megatron-LM");
    if (!st) st = import_megatron(im, flags, num, 0);
    for (size_t i = 0; i < count && !st; i++)
        if (is_setting(words[i])) st = import_setting(im, words[i]);
    free(flags);
    return st;
}
