// SPDX-License-Identifier: Apache-2.0
#include "infer/text_generation.h"

#include "base/clock.h"
#include "base/signals.h"
#include "base/terminal_text.h"

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

enum status text_generation_set_prompt(struct generation *g, const char *prompt)
{
    const struct tokenizer *t = g->loaded.tokenizer;
    struct encoder *encoder = NULL;
    enum status st = STATUS_OK;
    if (!t)
        FAIL(CONFIG,
             "%s has no tokenizer: name one with --tokenizer, or for a model of spike counts use "
             "--session or --neurons",
             g->loaded.folder);
    g->ids.count = 0;
    token_list_reserve(&g->ids, 1);
    if (g->loaded.config.data.bos && tokenizer_bos(t) >= 0)
        g->ids.ids[g->ids.count++] = tokenizer_bos(t);
    TRY_OUT(encoder_make(&encoder, t));
    TRY_OUT(encoder_encode(encoder, prompt, strlen(prompt), &g->ids));
    if (!g->ids.count)
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

/* Adds a token and prints what is certain to belong to the text; into a file or pipe even if it
 * ends inside a UTF-8 character. */
static enum status add_token(struct text_generation *t, const struct tokenizer *tokenizer,
                             int32_t id)
{
    size_t before = t->bytes.len;
    TRY(tokenizer_decode_part(tokenizer, &id, 1, &t->bytes));
    if (t->num_stops && cut_at_stop(t, before)) t->finish = TEXT_FINISH_stop;
    print_rest(t, t->bytes.len - (t->finish == TEXT_FINISH_stop ? 0 : held_back(t)), false);
    return STATUS_OK;
}

/* All ranks agree, as only some may have got the signal. */
static enum status agree_to_end(const struct generation *g, bool *ends)
{
    int64_t pending = signals_pending() > 0;
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
    for (int64_t n = 0; n < g->max_tokens && t->finish == TEXT_FINISH_length; n++) {
        int32_t id;
        TRY(agree_to_end(g, &ends));
        if (ends) t->finish = TEXT_FINISH_interrupt;
        if (ends) break;
        TRY(generation_sample(g, &id));
        if (id == tokenizer_eos(tokenizer)) t->finish = TEXT_FINISH_eos;
        if (id == tokenizer_eos(tokenizer)) break;
        TRY(add_token(t, tokenizer, id));
        TRY(generation_append(g, id, n + 1 < g->max_tokens && t->finish == TEXT_FINISH_length));
    }
    t->seconds = clock_monotonic_s() - begin;
    print_rest(t, t->bytes.len, true);
    return STATUS_OK;
}

void text_generation_release(struct text_generation *t) { text_release(&t->bytes); }
