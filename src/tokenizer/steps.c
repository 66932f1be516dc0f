// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/steps.h"

#include "tokenizer/text/letters.h"
#include "tokenizer/text/regex.h"
#include "tokenizer/text/unicode.h"

#include <stdlib.h>
#include <string.h>

void steps_release(struct steps *s)
{
    for (size_t i = 0; i < s->count; i++) {
        regex_free(s->all[i].regex);
        free(s->all[i].string);
    }
    *s = (struct steps){0};
}

void steps_work_init(struct steps_work *w, const struct steps *s)
{
    *w = (struct steps_work){.steps = s};
    for (size_t i = 0; i < s->count; i++)
        if (s->all[i].regex) w->all[i].match = regex_match_make(s->all[i].regex);
}

void steps_work_release(struct steps_work *w)
{
    for (size_t i = 0; i < STEPS_MOST; i++) {
        regex_match_free(w->all[i].match);
        text_release(&w->all[i].text);
    }
    *w = (struct steps_work){0};
}

/* One rule at work on one piece. */
struct run {
    struct steps_work *work;
    size_t index;
    take_piece *take;
    void *context;
    const unsigned char *text, *seen; /* the piece, and as the step sees it */
    size_t seen_len;
    size_t counted, bytes; /* of `seen`, how far it is gone through, and of `text` the same place */
    size_t begin, end;     /* in `text`, of the piece that may still grow */
    bool holds, was_match; /* there is one; the last segment was a match */
};

static enum status run_step(struct steps_work *w, size_t index, const unsigned char *text,
                            size_t len, take_piece *take, void *context);

static const struct step *step_of(const struct run *r) { return &r->work->steps->all[r->index]; }

/* The next match from `at` on, in what the step sees; both are its end where there is none. */
static enum status find(const struct run *r, size_t at, size_t *begin, size_t *end)
{
    const struct step *s = step_of(r);
    const unsigned char *text = r->seen;
    size_t len = r->seen_len;
    int size;
    *begin = *end = len;
    if (s->split) {
        *begin = at, *end = at + s->split(text + at, len - at);
    } else if (s->regex) {
        TRY(regex_find(s->regex, r->work->all[r->index].match, text, len, at, begin, end));
    } else if (s->string) {
        const unsigned char *found = memmem(text + at, len - at, s->string, strlen(s->string));
        if (found) *begin = (size_t)(found - text), *end = *begin + strlen(s->string);
    } else if (s->marks) {
        for (; at < len; at += (size_t)size) {
            uint32_t code = unicode_decode(text + at, len - at, &size);
            if ((size == 1 && text[at] >= 0x80) || !unicode_is(code, s->marks)) continue;
            *begin = at, *end = at + (size_t)size;
            break;
        }
    }
    return STATUS_OK;
}

static enum status flush(struct run *r)
{
    if (!r->holds) return STATUS_OK;
    r->holds = false;
    return run_step(r->work, r->index + 1, r->text + r->begin, r->end - r->begin, r->take,
                    r->context);
}

/* A match, or what lies between two, up to seen[end]. */
static enum status add_segment(struct run *r, size_t end, bool match)
{
    const struct step *s = step_of(r);
    size_t begin = r->bytes;
    if (!s->spelt)
        r->bytes = end;
    else
        for (size_t i = r->counted; i < end; i++) r->bytes += (r->seen[i] & 0xC0) != 0x80;
    r->counted = end;
    match ^= s->inverted;
    bool joins = (s->behavior == STEP_CONTIGUOUS && match == r->was_match) ||
                 (s->behavior == STEP_MERGED_WITH_PREVIOUS && match && !r->was_match) ||
                 (s->behavior == STEP_MERGED_WITH_NEXT && !match && r->was_match);
    r->was_match = match;
    if (r->holds && joins) {
        r->end = r->bytes;
        return STATUS_OK;
    }
    TRY(flush(r));
    r->holds = s->behavior != STEP_REMOVED || !match;
    r->begin = begin, r->end = r->bytes;
    return STATUS_OK;
}

/* The piece as the step sees it. */
static enum status look(struct run *r, size_t len)
{
    const struct step *s = step_of(r);
    struct text *own = &r->work->all[r->index].text;
    r->seen = r->text;
    r->seen_len = len;
    bool adds = s->adds_space && r->text[0] != ' ';
    if (!adds && !s->spelt) return STATUS_OK;
    if (adds) TRY(r->take(r->context, NULL, 0));
    text_clear(own);
    if (adds) {
        text_adds(own, " ");
        text_add(own, r->text, len);
        r->text = (const unsigned char *)own->data;
    } else {
        letters_add(own, r->text, len, false);
    }
    r->seen = (const unsigned char *)own->data;
    r->seen_len = own->len;
    return STATUS_OK;
}

static enum status run_step(struct steps_work *w, size_t index, const unsigned char *text,
                            size_t len, take_piece *take, void *context)
{
    struct run r = {.work = w, .index = index, .take = take, .context = context, .text = text};
    if (!len) return STATUS_OK;
    if (index == w->steps->count) return take(context, text, len);
    TRY(look(&r, len));
    for (size_t at = 0, begin, end; at < r.seen_len; at = end) {
        TRY(find(&r, at, &begin, &end));
        if (begin > at) TRY(add_segment(&r, begin, false));
        if (end > begin) TRY(add_segment(&r, end, true));
    }
    return flush(&r);
}

enum status steps_run(struct steps_work *w, const unsigned char *text, size_t len, take_piece *take,
                      void *context)
{
    return run_step(w, 0, text, len, take, context);
}
