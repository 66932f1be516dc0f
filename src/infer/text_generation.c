// SPDX-License-Identifier: Apache-2.0
#include "infer/text_generation.h"

#include "base/clock.h"
#include "base/signals.h"
#include "base/terminal_text.h"

#include <stdio.h>
#include <string.h>

const char *text_generation_finish_name(enum text_finish finish)
{
    static const char *const names[] = {
#define X(name, text) #name,
        TEXT_FINISH_LIST(X)
#undef X
    };
    return names[finish];
}

enum status text_generation_encode(const struct loaded_model *l, const char *prompt,
                                   struct token_list *ids)
{
    const struct tokenizer *t = l->tokenizer;
    struct encoder *encoder = NULL;
    enum status st = STATUS_OK;
    if (!t)
        FAIL(CONFIG,
             "%s has no tokenizer: name one with --tokenizer, or for a model of spike counts use "
             "--session or --neurons",
             l->folder);
    ids->count = 0;
    token_list_reserve(ids, 1);
    if (l->config.data.bos && tokenizer_bos(t) >= 0) ids->ids[ids->count++] = tokenizer_bos(t);
    TRY_OUT(encoder_make(&encoder, t));
    TRY_OUT(encoder_encode(encoder, prompt, strlen(prompt), ids));
    if (!ids->count)
        FAIL_OUT(USAGE, "--prompt: must not be empty, as the tokenizer has no begin-of-text token");
out:
    encoder_free(encoder);
    return st;
}

/* How many bytes at the end may be the beginning of a stop text. */
static size_t held_back(const struct text_generation *t)
{
    size_t most = 0;
    for (int i = 0; i < t->num_stops; i++) {
        size_t len = strlen(t->stops[i]);
        for (size_t n = len - 1; n > most; n--)
            if (n <= t->bytes.len && !memcmp(t->bytes.data + t->bytes.len - n, t->stops[i], n))
                most = n;
    }
    return most;
}

/* Cuts the text before the first stop text; false: it has none. */
static bool cut_at_stop(struct text_generation *t, size_t from)
{
    const char *first = NULL;
    for (int i = 0; i < t->num_stops; i++) {
        size_t len = strlen(t->stops[i]), begin = from > len ? from - len : 0;
        const char *found = memmem(t->bytes.data + begin, t->bytes.len - begin, t->stops[i], len);
        if (found && (!first || found < first)) first = found;
    }
    if (first) t->bytes.len = (size_t)(first - t->bytes.data);
    return first != NULL;
}

/* With `last` all bytes up to `end`, else without the beginning of a character on a terminal. */
static void print_rest(struct text_generation *t, size_t end, bool last)
{
    if (!t->prints || end <= t->num_printed) return;
    t->num_printed +=
        terminal_text_write(t->bytes.data + t->num_printed, end - t->num_printed, last);
}

/* Into a file or pipe even if the text ends inside a UTF-8 character. */
enum status text_generation_add(struct text_generation *t, const struct tokenizer *tokenizer,
                                int32_t id)
{
    size_t before = t->bytes.len;
    if (id == tokenizer_eos(tokenizer)) t->finish = TEXT_FINISH_eos;
    if (t->finish == TEXT_FINISH_eos) return STATUS_OK;
    TRY(tokenizer_decode_part(tokenizer, &id, 1, &t->bytes));
    if (t->num_stops && cut_at_stop(t, before)) t->finish = TEXT_FINISH_stop;
    print_rest(t, t->bytes.len - (t->finish == TEXT_FINISH_stop ? 0 : held_back(t)), false);
    return STATUS_OK;
}

/* All ranks agree, as only some may have got the signal. */
enum status text_generation_is_interrupted(const struct text_generation *t,
                                           const struct generation *g, bool *ends)
{
    int64_t pending = signals_pending() > 0;
    if (t->asks_to_end && generation_is_root(g)) pending |= t->asks_to_end(t->context);
    TRY(comm_all_reduce_int64(&g->loaded.machine.world, REDUCE_MAX, &pending, 1));
    *ends = pending;
    return STATUS_OK;
}

enum status text_generation_run(struct text_generation *t, struct generation *g)
{
    const struct tokenizer *tokenizer = g->loaded.tokenizer;
    double begin = clock_monotonic_s();
    bool ends = false;
    text_clear(&t->bytes);
    t->num_printed = 0, t->finish = TEXT_FINISH_length;
    t->prints = t->prints && generation_is_root(g);
    TRY(generation_prefill(g));
    t->prompt_seconds = clock_monotonic_s() - begin;
    for (int64_t n = 0; n < g->max_tokens && t->finish == TEXT_FINISH_length; n++) {
        int32_t id;
        TRY(text_generation_is_interrupted(t, g, &ends));
        if (ends) t->finish = TEXT_FINISH_interrupt;
        if (ends) break;
        TRY(generation_sample(g, &id));
        TRY(text_generation_add(t, tokenizer, id));
        if (t->finish == TEXT_FINISH_eos) break;
        bool more = n + 1 < g->max_tokens && t->finish == TEXT_FINISH_length;
        TRY(generation_append(g, id, more));
    }
    t->seconds = clock_monotonic_s() - begin;
    print_rest(t, t->bytes.len, true);
    return STATUS_OK;
}

/* The text before a stop text ends within a token; other texts are those of their tokens. */
static enum status write_text(const struct loaded_model *l, const struct generated_text *t,
                              struct json_writer *w)
{
    const struct text_generation *g = t->text;
    struct text text = {0};
    if (g->finish != TEXT_FINISH_stop) {
        TRY(loaded_model_write_text(l, t->ids->ids + t->num_prompt, t->ids->count - t->num_prompt,
                                    "text", w));
        return STATUS_OK;
    }
    text_add(&text, g->bytes.data, g->bytes.len);
    for (size_t i = 0; i < text.len; i++)
        if (!text.data[i]) text.data[i] = '\xFF'; /* U+FFFD */
    json_write_string(w, "text", text.len ? text.data : "");
    text_release(&text);
    return STATUS_OK;
}

enum status text_generation_print_json(const struct loaded_model *l, const struct generated_text *t)
{
    size_t made = t->ids->count - t->num_prompt;
    struct text out = {0};
    struct json_writer w = {.text = &out};
    enum status st = STATUS_OK;
    json_begin_object(&w, NULL, JSON_INLINE);
    if (t->prompt) json_write_string(&w, "prompt", t->prompt);
    TRY_OUT(write_text(l, t, &w));
    if (t->log_probabilities)
        json_write_string(&w, "finish_reason", text_generation_finish_name(t->text->finish));
    json_begin_array(&w, "ids", JSON_INLINE);
    for (size_t i = 0; i < made; i++) json_write_int(&w, NULL, t->ids->ids[t->num_prompt + i]);
    json_end_array(&w);
    if (t->log_probabilities) {
        json_begin_array(&w, "log_probabilities", JSON_INLINE);
        for (size_t i = 0; i < made; i++)
            json_write_format(&w, NULL, "%.6g", t->log_probabilities[i]);
        json_end_array(&w);
    }
    json_write_int(&w, "prompt_tokens", (int64_t)t->num_prompt);
    if (!t->prompt) json_write_format(&w, "seconds", "%.3f", t->text->seconds);
    if (!t->prompt && t->text->prompt_seconds > 0)
        json_write_format(&w, "prompt_seconds", "%.3f", t->text->prompt_seconds);
    json_end_object(&w);
    json_finish(&w);
    puts(out.data);
    fflush(stdout);
out:
    text_release(&out);
    return st;
}

void text_generation_release(struct text_generation *t) { text_release(&t->bytes); }
