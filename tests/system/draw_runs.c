// SPDX-License-Identifier: Apache-2.0
#include "system/draw_runs.h"

#include "system/runs.h"

enum { MAX_WORDS = 64 };

struct words {
    char *line;
    const char *words[MAX_WORDS];
};

static void split_words(struct words *w, const struct text *line)
{
    char *next = NULL;
    int n = 0;
    *w = (struct words){.line = heap_string(line->data, line->len)};
    for (char *word = strtok_r(w->line, " ", &next); word; word = strtok_r(NULL, " ", &next)) {
        CHECK(n < MAX_WORDS - 1);
        w->words[n++] = word;
    }
}

int draw_run_line(const struct text *line, struct text *out, struct text *err)
{
    struct words w;
    split_words(&w, line);
    int code = test_llamero(out, err, w.words);
    free(w.line);
    return code;
}

static void add_command(struct text *line, const struct draw *d, const char *command,
                        const struct draw_layout *layout, const char *dump)
{
    text_addf(line, "%s %s/run.toml --ranks %d job.dump_folder=%s/%s%s %s%s", command, d->folder,
              layout->ranks, d->folder, dump, d->settings.data, layout->settings, d->also);
}

int draw_run(const struct draw *d, const char *command, const struct draw_layout *layout,
             const char *dump, struct text *err)
{
    struct text line = {0};
    struct words w;
    if (d->program) text_addf(&line, "%s ", d->program);
    add_command(&line, d, command, layout, dump);
    split_words(&w, &line);
    int code = d->program ? test_run(w.words, NULL, err) : test_llamero(NULL, err, w.words);
    free(w.line);
    text_release(&line);
    return code;
}

pid_t draw_start(const struct draw *d, const char *dump, const char *err)
{
    struct text line = {0};
    struct words w;
    add_command(&line, d, "train", d->layout, dump);
    split_words(&w, &line);
    pid_t run = runs_start(err, w.words);
    free(w.line);
    text_release(&line);
    return run;
}

void draw_read_metrics(const char *dump, struct text *numbers)
{
    static const char *const keys[] = {
        "step",        "loss",           "max_loss", "grad_norm", "lr", "validation_loss",
        "tokens_seen", "parameter_norm", "padding"};
    struct text t = {0};
    char *next;
    text_adds(numbers, "");
    CHECK_STATUS(OK, file_read(test_path(dump, "metrics.jsonl"), UINT64_MAX, &t));
    for (char *at = strtok_r(t.data, "\n", &next); at; at = strtok_r(NULL, "\n", &next)) {
        struct json *line;
        CHECK_STATUS(OK, json_parse(at, strlen(at), dump, &line));
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            const struct json *v = json_get(line, keys[i]);
            if (json_is_number(v)) text_addf(numbers, "%s %.9g ", keys[i], json_number(v));
        }
        text_adds(numbers, "\n");
        json_free(line);
    }
    text_release(&t);
}

const char *draw_checkpoint(const struct draw *d, const char *dump, int step)
{
    char name[64];
    snprintf(name, sizeof name, "%s/checkpoint/step-%d", dump, step);
    return test_path(d->folder, name);
}

void draw_copy_first_checkpoint(const struct draw *d, const char *from, const char *to)
{
    const char *folder = test_path(test_path(d->folder, to), "checkpoint"), *first = NULL;
    for (int step = 1; step < d->steps && (!first || !file_exists(first)); step++)
        first = draw_checkpoint(d, from, step);
    CHECK_STATUS(OK, file_make_dirs(folder));
    CHECK(test_run((const char *const[]){"cp", "-r", first, folder, NULL}, NULL, NULL) == 0);
}
