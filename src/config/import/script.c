/* script.c -- imports scripts that start Megatron-LM's pretrain_gpt.py, or `accelerate launch` with
 * frontier-guide's train.py. */
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"
#include "config/import/accelerate.h"
#include "config/import/import.h"
#include "config/import/megatron.h"
#include "config/import/shell_parse.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20, MAX_RANKS = 1 << 20 };

/* Reads a script that this one starts: the file of that name in the same folder, whatever its
 * path. */
static enum status open_in_same_folder(const void *context, const char *path, struct text *bytes)
{
    uint64_t size;
    char *folder = file_parent(context), *local = file_join(folder, file_name(path));
    enum status st = file_size(local, &size); /* fails unless it is a regular file */
    if (!st) st = file_read(local, MAX_BYTES, bytes);
    free(folder), free(local);
    return st;
}

/* Returns the number of ranks from torchrun's arguments; 0: unknown. */
static int64_t count_ranks(const struct shell_words *w)
{
    int64_t nodes = 1, ranks = 0;
    for (size_t i = 0; i < w->count; i++) {
        const char *word = w->items[i], *equals = strchr(word, '=');
        const char *value = equals ? equals + 1 : i + 1 < w->count ? w->items[i + 1] : "";
        size_t len = equals ? (size_t)(equals - word) : strlen(word);
        char *end;
        long long n = strtoll(value, &end, 10);
        bool number = end != value && !*end && n > 0 && n <= MAX_RANKS;
        if ((len == 16 && !strncmp(word, "--nproc_per_node", len)) ||
            (len == 16 && !strncmp(word, "--nproc-per-node", len)))
            ranks = number ? n : 0;
        if (len == 8 && !strncmp(word, "--nnodes", len)) nodes = number ? n : 0;
    }
    return nodes * ranks <= MAX_RANKS ? nodes * ranks : 0;
}

/* Whether it is section.key=value of ours, not a flag or a path. */
static bool is_setting(const char *word)
{
    const char *equals = strchr(word, '='), *dot = strchr(word, '.'), *slash = strchr(word, '/');
    return strncmp(word, "--", 2) && equals && dot && dot < equals && dot != word &&
           !(slash && slash < equals);
}

/* Appends "A=VALUE B=VALUE" for the script's variables in $(A,B...) and ${A}.  Returns whether it
 * has no other names, which are commands. */
static bool append_assignments(const struct shell *s, const char *word, struct text *out)
{
    const char *at = strstr(word, "$(");
    bool all = true;
    if (!at) at = strstr(word, "${");
    for (at = at ? at + 2 : ""; *at;) {
        size_t len = strcspn(at, ",.)}");
        char *name = heap_string(at, len);
        if (shell_is_name(name, len) && (shell_find(s, name) || shell_is_system_variable(name)))
            text_addf(out, "%s=VALUE ", name);
        else
            all = false;
        free(name);
        at += len;
        if (*at++ != ',') break;
    }
    return all;
}

static enum status fail_unknown(const struct shell *s, const char *flag, const char *word)
{
    struct text settings = {0};
    if (append_assignments(s, word, &settings) && settings.len)
        settings.data[settings.len - 1] = 0; /* the last blank */
    else
        text_adds(&settings, "VAR=VALUE, where VAR is the script's variable for what a command "
                             "prints; add one if it has none");
    enum status st = FAILURE(CONFIG,
                             "%s:%d: %s %s: this value is known only when the script runs; set it "
                             "on the command line: %s",
                             s->file, s->command_line, flag, word, settings.data);
    text_release(&settings);
    return st;
}

/* CONFIG: the value of a flag that takes a number is known only when the script runs. */
static enum status check_numbers(const struct shell *s)
{
    for (size_t i = 1; i < s->command.count; i++) {
        const char *flag = s->command.items[i - 1], *word = s->command.items[i];
        if (strncmp(flag, "--", 2) || !shell_is_unknown(word)) continue;
        bool is_number = strstr(flag, "-size") || strstr(flag, "num-") || strstr(flag, "-iters") ||
                         strstr(flag, "-samples") || strstr(flag, "-length") || strstr(flag, "-lr");
        if (is_number) return fail_unknown(s, flag, word);
    }
    return STATUS_OK;
}

/* "#SBATCH --nodes=16" sets what Slurm would. */
static void set_nodes(struct shell *s, const char *bytes, size_t len)
{
    static const char *const forms[] = {"#SBATCH --nodes=", "#SBATCH --nodes ", "#SBATCH -N "};
    for (const char *at = bytes, *end = bytes + len; at < end;) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
            size_t n = strlen(forms[i]), digits = 0;
            if ((size_t)(end - at) < n || memcmp(at, forms[i], n)) continue;
            while (at + n + digits < end && at[n + digits] >= '0' && at[n + digits] <= '9')
                digits++;
            char *value = heap_string(at + n, digits);
            if (digits) shell_set(s, "SLURM_NNODES", value);
            free(value);
        }
        at = next ? next + 1 : end;
    }
}

static enum status read_script(struct shell *s, const char *bytes, size_t len,
                               const char *const *words, size_t count)
{
    set_nodes(s, bytes, len);
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
    if (!text_is_utf8(bytes, len)) FAIL(CONFIG, "%s: not a script: not UTF-8", s->file);
    TRY(shell_parse(s, bytes, len, 1));
    bool exits = s->exit_place.len > 0; /* the script itself, or one that it runs */
    if (!s->command.count && s->end && exits)
        FAIL(CONFIG, "%s: with these variables the script exits here%s%.300s", s->exit_place.data,
             s->last_echo.len ? ": " : "", s->last_echo.len ? s->last_echo.data : "");
    if (!s->command.count)
        FAIL(CONFIG,
             "%s: starts neither pretrain_gpt.py nor `accelerate launch`%s%.300s%s (to replace "
             "preprocess_data.py, use `llamero prepare`)",
             s->file, exits ? "; with these variables " : "", exits ? s->exit_place.data : "",
             exits ? " exits" : "");
    const char *similar, *unused = shell_unused(s, &similar);
    if (unused)
        FAIL(CONFIG, "command line: %s: the script does not use this variable%s%s%s", unused,
             similar ? "; did you mean " : "", similar ? similar : "", similar ? "?" : "");
    return check_numbers(s);
}

/* accelerate's program names the data. */
static enum status import_accelerated(struct import *im, const struct shell *s,
                                      const char *const *words, size_t count)
{
    struct text program = {0};
    bool has_steps = false;
    for (size_t i = 0; i < count; i++) has_steps |= !strncmp(words[i], "training.steps=", 15);
    if (open_in_same_folder(s->files.context, s->accelerated, &program)) text_clear(&program);
    text_adds(&program, "");
    enum status st = accelerate_import(im, s, program.data, has_steps);
    text_release(&program);
    return st;
}

/* ROCm's scripts enable GEMM tuning by a variable that a library reads, not by a flag. */
static enum status set_gemm_tuning(struct import *im, const struct shell *s)
{
    const char *value = shell_get(s, "GEMM_TUNING");
    if (!value || (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)) return STATUS_OK;
    import_add_item(im, "GEMM_TUNING", 0, &value, 1);
    return import_set(
        im, import_get(im, "GEMM_TUNING"), "device.tune_gemm", value[0] == '1' ? "true" : "false",
        "GEMM tile configurations are timed before the first step; results are bitwise the same.");
}

enum status import_script(struct import *im, const char *bytes, size_t len, const char *file,
                          const char *const *words, size_t count)
{
    struct shell s;
    shell_init(&s, file, (struct shell_files){open_in_same_folder, file});
    enum status st = import_init(im, file, "Megatron-LM");
    if (!st) st = read_script(&s, bytes ? bytes : "", len, words, count);
    if (!st) {
        im->num_ranks = count_ranks(&s.launcher);
        const char *const *flags = (const char *const *)s.command.items;
        if (s.accelerated)
            st = import_accelerated(im, &s, words, count);
        else
            st = megatron_import(im, flags, s.command.count, s.command_line);
        if (!st) st = set_gemm_tuning(im, &s);
    }
    for (size_t i = 0; i < s.num_notes && !st; i++) {
        struct text note = {0};
        text_addf(&note, "line %d of the script: %s", s.notes[i].line, s.notes[i].text);
        import_add_note(im, IMPORT_IGNORED, NULL, note.data);
        text_release(&note);
    }
    for (size_t i = 0; i < count && !st; i++)
        if (is_setting(words[i])) st = rules_apply_setting(im, words[i]);
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
    if (!st) st = megatron_import(im, flags, num, 0);
    for (size_t i = 0; i < count && !st; i++)
        if (is_setting(words[i])) st = rules_apply_setting(im, words[i]);
    free(flags);
    return st;
}
