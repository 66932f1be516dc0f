// SPDX-License-Identifier: Apache-2.0
#include "app/prompt_list.h"

#include "base/counted.h"
#include "base/file.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

static void add_prompt(struct prompt_list *p, const char *prompt, size_t len)
{
    p->all = heap_grow(p->all, p->count + 1, sizeof *p->all);
    p->all[p->count++] = heap_string(prompt, len);
    if (len > p->longest) p->longest = len;
}

static enum status add_json_prompt(struct prompt_list *p, const char *line, size_t len,
                                   const char *where)
{
    struct json *v;
    enum status st = STATUS_OK;
    TRY(json_parse(line, len, where, &v));
    const struct json *prompt = json_is_object(v) ? json_get(v, "prompt") : NULL;
    if (!json_is_string(prompt))
        FAIL_OUT(DATA, "%s: expected an object with a string \"prompt\"", where);
    add_prompt(p, json_string(prompt), strlen(json_string(prompt)));
out:
    json_free(v);
    return st;
}

static enum status add_lines(struct prompt_list *p, const char *path, const struct text *content)
{
    const char *dot = strrchr(path, '.'), *at = content->data, *end = at + content->len;
    bool is_json = dot && !strcmp(dot, ".jsonl");
    struct text where = {0};
    enum status st = STATUS_OK;
    for (size_t line = 1; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((newline ? newline : end) - at);
        size_t text = len && at[len - 1] == '\r' ? len - 1 : len;
        text_clear(&where);
        text_addf(&where, "%s:%zu", path, line);
        if (memchr(at, 0, len)) FAIL_OUT(DATA, "%s: the line has a NUL byte", where.data);
        if (text && is_json)
            TRY_OUT(add_json_prompt(p, at, text, where.data));
        else if (text)
            add_prompt(p, at, text);
        at += len + 1;
    }
    if (!p->count) FAIL_OUT(DATA, "%s: the file has no prompt", path);
out:
    text_release(&where);
    return st;
}

enum status prompt_list_read(struct prompt_list *p, const char *path)
{
    struct text content = {0};
    enum status st = STATUS_OK;
    *p = (struct prompt_list){0};
    TRY_OUT(file_read(path, (uint64_t)1 << 30, &content));
    if (!content.len) FAIL_OUT(DATA, "%s: the file has no prompt", path);
    TRY_OUT(add_lines(p, path, &content));
out:
    text_release(&content);
    return st;
}

void prompt_list_release(struct prompt_list *p)
{
    for (size_t i = 0; i < p->count; i++) free(p->all[i]);
    free(p->all);
    *p = (struct prompt_list){0};
}

/* What the visitor adds up. */
struct printing {
    const struct generation *g;
    size_t tokens, prompt_tokens;
};

static enum status print_item(void *context, const struct text_batch_item *item)
{
    struct printing *p = context;
    const struct generated_text t = {&item->text, &item->ids, item->num_prompt,
                                     item->log_probabilities, item->prompt};
    p->tokens += item->ids.count - item->num_prompt;
    p->prompt_tokens += item->num_prompt;
    if (generation_is_root(p->g)) TRY(text_generation_print_json(&p->g->loaded, &t));
    return STATUS_OK;
}

enum status prompt_list_generate(const struct prompt_list *p, struct generation *g, int64_t copies,
                                 const char *const *stops, int num_stops)
{
    struct printing printing = {.g = g};
    struct text_batch b = {.count = p->count * (size_t)copies,
                           .stops = stops,
                           .num_stops = num_stops,
                           .visit = print_item,
                           .context = &printing};
    b.items = heap(b.count * sizeof *b.items);
    for (size_t i = 0; i < b.count; i++)
        b.items[i] = (struct text_batch_item){.prompt = p->all[i / (size_t)copies],
                                              .seed = g->sampling.seed + i % (size_t)copies};
    enum status st = text_batch_run(&b, g);
    if (!st)
        log_line(LOG_INFO, "read %s of %s in %.3f s and generated %zu in %.3f s",
                 counted_format((int64_t)printing.prompt_tokens, "token").text,
                 counted_format((int64_t)b.count, "text").text, b.prompt_seconds, printing.tokens,
                 b.seconds - b.prompt_seconds);
    text_batch_release(&b);
    free(b.items);
    return st;
}
