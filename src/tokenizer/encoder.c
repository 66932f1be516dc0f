/* encoder.c -- a text's pieces, each looked up, remembered or merged. */
// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/kinds.h"
#include "tokenizer/merge.h"
#include "tokenizer/sentence.h"
#include "tokenizer/text/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { USUAL_BITS = 16, REMEMBERED_BYTES = 15, REMEMBERED_IDS = 4 };

/* What a short piece came to; the next piece of the same slot takes its place.  Half a line of a
 * processor's cache each. */
struct remembered {
    uint64_t key[2];             /* the bytes, and last their number: never both 0 */
    int32_t ids[REMEMBERED_IDS]; /* -1: there are no more */
};

struct encoder {
    const struct tokenizer *tokenizer;
    struct merger merger;
    struct steps_work steps;
    struct remembered *slots; /* 2^slot_bits */
    int slot_bits;
    struct text normal; /* what a text became */
};

enum status encoder_make(struct encoder **out, const struct tokenizer *t)
{
    return encoder_make_sized(out, t, USUAL_BITS);
}

enum status encoder_make_sized(struct encoder **out, const struct tokenizer *t, int slot_bits)
{
    struct encoder *e = *out = heap(sizeof *e);
    e->tokenizer = t;
    e->slot_bits = slot_bits;
    e->slots = heap(sizeof *e->slots << slot_bits);
    steps_work_init(&e->steps, &t->steps);
    return STATUS_OK;
}

void encoder_free(struct encoder *e)
{
    if (!e) return;
    merger_release(&e->merger);
    steps_work_release(&e->steps);
    text_release(&e->normal);
    free(e->slots);
    free(e);
}

static enum status encode_fresh(struct encoder *e, const unsigned char *piece, size_t len,
                                struct token_list *out)
{
    enum { LONGEST = 64 << 20 }; /* merging takes 60 bytes a byte */
    const struct tokenizer *t = e->tokenizer;
    int32_t whole = t->whole_pieces ? vocabulary_find(&t->vocabulary, piece, len) : -1;
    if (whole >= 0) {
        token_list_reserve(out, 1);
        out->ids[out->count++] = whole;
        return STATUS_OK;
    }
    if (len > LONGEST)
        FAIL(DATA, "a text has %zu bytes without a place to split it; %d at most", len, LONGEST);
    if (t->sentence) {
        size_t begin = out->count;
        int32_t *ids = merger_symbols(&e->merger, SENTENCE_SYMBOLS * len + 1);
        size_t count = sentence_symbols(t->sentence, &t->vocabulary, piece, len, ids);
        merger_join(&e->merger, &t->vocabulary, ids, count, out);
        sentence_settle(t->sentence, &t->vocabulary, out, begin);
    } else {
        merger_encode(&e->merger, &t->vocabulary, piece, len, out);
    }
    return STATUS_OK;
}

/* A piece, and where it is remembered if it is short. */
struct piece {
    const unsigned char *bytes;
    size_t len;
    uint64_t key[2];
    struct remembered *slot; /* NULL: it is long */
};

static void look_up(const struct encoder *e, struct piece *p)
{
    p->slot = NULL;
    if (p->len > REMEMBERED_BYTES) return;
    unsigned char padded[REMEMBERED_BYTES + 1] = {[REMEMBERED_BYTES] = (unsigned char)p->len};
    memcpy(padded, p->bytes, p->len);
    memcpy(p->key, padded, sizeof padded);
    uint64_t hash = (p->key[0] ^ p->key[1] * 0x9E3779B97F4A7C15u) * 0xFF51AFD7ED558CCDu;
    p->slot = &e->slots[(hash ^ hash << 27) >> (64 - e->slot_bits)];
    __builtin_prefetch(p->slot);
}

static enum status encode_piece(struct encoder *e, const struct piece *p, struct token_list *out)
{
    struct remembered *r = p->slot;
    if (!r) return encode_fresh(e, p->bytes, p->len, out);
    if (r->key[0] == p->key[0] && r->key[1] == p->key[1]) {
        token_list_reserve(out, REMEMBERED_IDS);
        memcpy(out->ids + out->count, r->ids, sizeof r->ids);
        for (int i = 0; i < REMEMBERED_IDS; i++) out->count += r->ids[i] >= 0;
        return STATUS_OK;
    }
    size_t before = out->count;
    TRY(encode_fresh(e, p->bytes, p->len, out));
    size_t made = out->count - before;
    if (made > REMEMBERED_IDS) return STATUS_OK;
    *r = (struct remembered){{p->key[0], p->key[1]}, {-1, -1, -1, -1}};
    if (made) memcpy(r->ids, out->ids + before, made * sizeof *r->ids); /* else there may be none */
    return STATUS_OK;
}

/* Several pieces at a time, so that what is remembered of them arrives while others are cut. */
enum { AT_A_TIME = 16 };

struct pieces {
    struct encoder *encoder;
    struct token_list *out;
    size_t count;
    struct piece all[AT_A_TIME];
};

static enum status encode_pieces(struct pieces *p)
{
    for (size_t i = 0; i < p->count; i++) TRY(encode_piece(p->encoder, &p->all[i], p->out));
    p->count = 0;
    return STATUS_OK;
}

static enum status take(void *context, const unsigned char *bytes, size_t len)
{
    struct pieces *p = context;
    if (!len || p->count == AT_A_TIME) TRY(encode_pieces(p));
    if (!len) return STATUS_OK;
    p->all[p->count] = (struct piece){.bytes = bytes, .len = len};
    look_up(p->encoder, &p->all[p->count++]);
    return STATUS_OK;
}

static enum status encode_steps(struct encoder *e, const unsigned char *text, size_t len,
                                struct token_list *out)
{
    struct pieces pieces = {.encoder = e, .out = out};
    TRY(steps_run(&e->steps, text, len, take, &pieces));
    return encode_pieces(&pieces);
}

static enum status encode_part(struct encoder *e, const unsigned char *text, size_t len,
                               struct token_list *out)
{
    const struct tokenizer *t = e->tokenizer;
    struct piece pieces[AT_A_TIME];
    if (t->steps.count) return encode_steps(e, text, len, out);
    for (size_t at = 0, count; at < len;) {
        for (count = 0; count < AT_A_TIME && at < len; count++) {
            size_t n = len;
            if (t->split)
                n = t->split(text + at, len - at);
            else if (t->sentence)
                n = sentence_cut(t->sentence, text + at, len - at);
            pieces[count] = (struct piece){.bytes = text + at, .len = n};
            look_up(e, &pieces[count]);
            at += n;
        }
        for (size_t i = 0; i < count; i++) TRY(encode_piece(e, &pieces[i], out));
    }
    return STATUS_OK;
}

static void encode_bytes(const struct tokenizer *t, const unsigned char *text, size_t len,
                         struct token_list *out)
{
    token_list_reserve(out, len);
    for (size_t i = 0; i < len; i++) out->ids[out->count++] = t->vocabulary.of_byte[text[i]];
}

/* What Python's str.isspace says: white space, and the four separators of ASCII. */
static bool is_space(const unsigned char *text, size_t len, int *size)
{
    return unicode_next(text, len, size) == UNICODE_SPACE || (text[0] >= 0x1C && text[0] <= 0x1F);
}

/* Meta's tokenizer.py cuts text every 400,000 characters, and these parts again wherever more than
 * 25,000 characters of one kind, space or not, stand in a row. */
static enum status encode_cut(struct encoder *e, const unsigned char *text, size_t len,
                              struct token_list *out)
{
    enum { MOST_CHARACTERS = 400000, MOST_ALIKE = 25000 };
    size_t begin = 0, characters = 0, alike = 0;
    bool kind = false;
    for (size_t at = 0; at < len; characters++) {
        int size;
        bool space = is_space(text + at, len - at, &size);
        bool part_ends = characters == MOST_CHARACTERS;
        alike = space == kind && !part_ends ? alike + 1 : 1;
        kind = space;
        if (part_ends) characters = 0;
        if (part_ends || alike > MOST_ALIKE) {
            TRY(encode_part(e, text + begin, at - begin, out));
            begin = at;
            alike = 1;
        }
        at += (size_t)size;
    }
    return encode_part(e, text + begin, len - begin, out);
}

/* Tokens that are taken from a text as they are, and what stands between them. */
static enum status encode_sentence(struct encoder *e, const unsigned char *bytes, size_t len,
                                   bool first, struct token_list *out)
{
    const struct sentence *s = e->tokenizer->sentence;
    size_t begin = out->count, done = 0, size;
    text_clear(&e->normal);
    sentence_normalize(s, bytes, len, first, &e->normal);
    const unsigned char *text = (const unsigned char *)e->normal.data;
    len = e->normal.len;
    for (size_t at = 0; at < len && !matcher_is_empty(&s->frozen);) {
        int32_t id = -1;
        if (matcher_may(&s->frozen, text[at]))
            id = matcher_find(&s->frozen, text + at, len - at, &size);
        if (id < 0) {
            at++;
            continue;
        }
        TRY(encode_part(e, text + done, at - done, out));
        token_list_reserve(out, 1);
        out->ids[out->count++] = id;
        done = at += size;
    }
    TRY(encode_part(e, text + done, len - done, out));
    sentence_fuse(s, out, begin);
    return STATUS_OK;
}

static enum status encode_plain(struct encoder *e, const unsigned char *text, size_t len,
                                bool first, struct token_list *out)
{
    const struct tokenizer *t = e->tokenizer;
    if (t->sentence) return encode_sentence(e, text, len, first, out);
    if (t->vocabulary.num_pairs || t->whole_pieces || t->steps.count)
        return t->meta_cuts ? encode_cut(e, text, len, out) : encode_part(e, text, len, out);
    encode_bytes(t, text, len, out);
    return STATUS_OK;
}

/* Added tokens of this stage, and what stands between them.  Those of the second are looked for in
 * the normalized text. */
static enum status encode_between(struct encoder *e, int stage, const unsigned char *text,
                                  size_t len, bool first, struct token_list *out)
{
    const struct added *a = &e->tokenizer->added;
    struct added_match found;
    size_t at = 0, done = 0;
    if (stage == 1 && e->tokenizer->form) {
        text_clear(&e->normal);
        if (unicode_normalize(e->tokenizer->form, text, len, &e->normal))
            text = (const unsigned char *)e->normal.data, len = e->normal.len;
    }
    if (stage == ADDED_STAGES || (stage == 1 && !a->finds))
        return encode_plain(e, text, len, first, out);
    while (added_next(a, stage, text, len, &at, done, &found)) {
        if (found.begin > done)
            TRY(encode_between(e, stage + 1, text + done, found.begin - done, first && !done, out));
        token_list_reserve(out, 1);
        out->ids[out->count++] = found.id;
        done = found.end;
    }
    if (done == len) return STATUS_OK;
    return encode_between(e, stage + 1, text + done, len - done, first && !done, out);
}

enum status encoder_encode(struct encoder *e, const char *bytes, size_t len, struct token_list *out)
{
    int stage = e->tokenizer->added.finds ? 0 : 1;
    return encode_between(e, stage, (const unsigned char *)bytes, len, true, out);
}
