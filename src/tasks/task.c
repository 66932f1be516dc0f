// SPDX-License-Identifier: Apache-2.0
#include "tasks/task.h"

#include "tasks/task_rows.h"
#include "tasks/task_text.h"

#include <stdlib.h>
#include <string.h>

/* Encodes requests; the lists are scratch. */
struct task_encoder {
    const struct tokenizer *tokenizer;
    struct encoder *encoder;
    struct token_list whole, context;
    struct text text;
};

static void add_id(struct token_list *l, int32_t id)
{
    token_list_reserve(l, 1);
    l->ids[l->count++] = id;
}

static enum status encode(struct task_encoder *e, const char *bytes, size_t len, bool bos,
                          struct token_list *out)
{
    out->count = 0;
    if (bos) add_id(out, tokenizer_bos(e->tokenizer));
    return encoder_encode(e->encoder, bytes, len, out);
}

/* BOS, or else EOS, stands in for an empty context, unless the continuation begins with
 * it. */
static enum status encode_alone(struct task_encoder *e, const struct text *text, size_t *context)
{
    int32_t bos = tokenizer_bos(e->tokenizer), eos = tokenizer_eos(e->tokenizer);
    int32_t first = bos >= 0 ? bos : eos;
    if (first < 0)
        FAIL(CONFIG, "%s: an empty context requires a tokenizer with a BOS or EOS token",
             tokenizer_path(e->tokenizer));
    TRY(encode(e, text->data, text->len, false, &e->context));
    bool has_first = e->context.count && e->context.ids[0] == first;
    e->whole.count = 0;
    if (!has_first) add_id(&e->whole, first);
    for (size_t i = 0; i < e->context.count; i++) add_id(&e->whole, e->context.ids[i]);
    *context = 1;
    return STATUS_OK;
}

/* Leaves the request's IDs in `whole`; the first *context are the context. */
static enum status encode_choice(struct task_encoder *e, const struct task_choice *c,
                                 size_t *context)
{
    const struct text *text = &c->context;
    size_t len = text->len - task_text_trailing_space(text->data, text->len);
    bool bos = tokenizer_adds_bos(e->tokenizer);
    text_clear(&e->text);
    text_add(&e->text, text->data, text->len);
    text_add(&e->text, c->continuation.data, c->continuation.len);
    if (!len) return encode_alone(e, &e->text, context);
    TRY(encode(e, e->text.data, e->text.len, bos, &e->whole));
    TRY(encode(e, e->text.data, len, bos, &e->context));
    *context = e->context.count;
    return STATUS_OK;
}

static enum status add_request(struct task *t, const struct task_options *o, struct task_encoder *e,
                               const struct task_choice *c)
{
    size_t context, most = (size_t)o->max_tokens + !o->masked;
    TRY(encode_choice(e, c, &context));
    size_t count = e->whole.count, scored = count > context ? count - context : 0;
    if (!scored) FAIL(DATA, "the answer \"%s\" has no token of its own", c->continuation.data);
    if (scored > (size_t)o->max_tokens)
        FAIL(DATA, "an answer has %zu tokens, more than a row of %d", scored, o->max_tokens);
    size_t skipped = count > most ? count - most : 0;
    t->num_truncated += skipped > 0;
    t->requests = heap_grow(t->requests, t->num_requests + 1, sizeof *t->requests);
    t->lengths = heap_grow(t->lengths, t->num_requests + 1, sizeof *t->lengths);
    t->lengths[t->num_requests] = c->length;
    t->requests[t->num_requests++] =
        (struct task_request){t->ids.count, (int)(count - skipped), (int)scored};
    token_list_reserve(&t->ids, count - skipped);
    memcpy(t->ids.ids + t->ids.count, e->whole.ids + skipped,
           (count - skipped) * sizeof *t->ids.ids);
    t->ids.count += count - skipped;
    return STATUS_OK;
}

static enum status fail_format(void)
{
    struct text names = {0};
    text_add_choices(&names, OPT_UNIT_ENUM(TASK_FORMATS));
    enum status st =
        FAILURE(CONFIG, "the columns match no known task; expected those of %s", names.data);
    text_release(&names);
    return st;
}

static enum status add_item(struct task *t, const struct task_options *o, struct task_encoder *e,
                            const struct json *row, struct task_question *q)
{
    if (!t->format) t->format = task_format_detect(row);
    if (!t->format) return fail_format();
    TRY(t->format->read(row, q));
    t->items = heap_grow(t->items, t->num_items + 1, sizeof *t->items);
    t->items[t->num_items++] = (struct task_item){t->num_requests, q->num_choices, q->gold};
    for (int i = 0; i < q->num_choices; i++) TRY(add_request(t, o, e, &q->choices[i]));
    return STATUS_OK;
}

static enum status read_items(struct task *t, const struct task_options *o, struct task_encoder *e)
{
    struct task_rows *rows = NULL;
    struct task_question q = {0};
    enum status st = STATUS_OK;
    TRY_OUT(task_rows_open(&rows, o->path));
    while (!o->limit || (int64_t)t->num_items < o->limit) {
        struct json *row;
        TRY_OUT(task_rows_next(rows, &row));
        if (!row) break;
        st = add_item(t, o, e, row, &q);
        json_free(row);
        if (st) {
            status_prefix(st, "%s", task_rows_where(rows));
            goto out;
        }
    }
    if (!t->num_items) FAIL_OUT(DATA, "%s: contains no rows", o->path);
out:
    task_format_release_question(&q);
    task_rows_close(rows);
    return st;
}

enum status task_open(struct task *t, const struct task_options *o, const struct tokenizer *tok)
{
    struct task_encoder e = {.tokenizer = tok};
    enum status st = STATUS_OK;
    *t = (struct task){.format = o->format, .masked = o->masked};
    t->name = heap_strdup(o->name);
    if (!tok) FAIL_OUT(CONFIG, "task %s requires a tokenizer", o->name);
    TRY_OUT(encoder_make(&e.encoder, tok));
    TRY_OUT(read_items(t, o, &e));
out:
    encoder_free(e.encoder);
    token_list_release(&e.whole), token_list_release(&e.context);
    text_release(&e.text);
    if (st) task_close(t);
    return st;
}

void task_close(struct task *t)
{
    free(t->name), free(t->items), free(t->requests), free(t->lengths);
    token_list_release(&t->ids);
    *t = (struct task){0};
}
