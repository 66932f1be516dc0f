// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sentence.h"

#include "base/json.h"
#include "tokenizer/text/unicode.h"

#include <stdlib.h>
#include <string.h>

static const char escaped_space[] = "\xE2\x96\x81", replacement[] = "\xEF\xBF\xBD";

struct sentence *sentence_make(void)
{
    struct sentence *s = heap(sizeof *s);
    s->unknown = -1;
    for (int i = 0; i < 256; i++) s->byte_id[i] = -1;
    for (int i = 0; i < 128; i++) s->ascii_id[i] = -1;
    text_adds(&s->texts, "");
    return s;
}

void sentence_free(struct sentence *s)
{
    if (!s) return;
    charsmap_release(&s->charsmap);
    matcher_release(&s->kept);
    matcher_release(&s->frozen);
    text_release(&s->texts);
    free(s->pieces);
    free(s->joins);
    free(s);
}

/* Appends, each U+2581 as a space. */
static void add_spaced(struct text *out, const char *text, size_t len)
{
    for (const char *at = text, *end = text + len; at < end;) {
        const char *mark = memchr(at, escaped_space[0], (size_t)(end - at));
        bool is = mark && end - mark >= 3 && !memcmp(mark, escaped_space, 3);
        const char *stop = is ? mark : mark ? mark + 1 : end;
        text_add(out, at, (size_t)(stop - at));
        if (is) text_add(out, " ", 1);
        at = is ? stop + 3 : stop;
    }
}

void sentence_spell(const struct sentence *s, const char *text, size_t len, struct text *out)
{
    if (s->escapes)
        add_spaced(out, text, len);
    else
        text_add(out, text, len);
}

int sentence_byte_named(const char *text, size_t len, bool upper)
{
    static const char digits[] = "0123456789ABCDEFabcdef";
    if (len != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
    const char *high = memchr(digits, text[3], upper ? 16 : 22);
    const char *low = memchr(digits, text[4], upper ? 16 : 22);
    if (!high || !low) return -1;
    int first = (int)(high - digits), second = (int)(low - digits);
    return (first > 15 ? first - 6 : first) << 4 | (second > 15 ? second - 6 : second);
}

void sentence_add_piece(struct sentence *s, int32_t id, enum sentence_kind kind, const char *text,
                        size_t len)
{
    if (id >= s->num_pieces) {
        int32_t grown = id + 1 > 2 * s->num_pieces ? id + 1 : 2 * s->num_pieces;
        s->pieces = heap_grow(s->pieces, (size_t)grown, sizeof *s->pieces);
        for (int32_t i = s->num_pieces; i < grown; i++) s->pieces[i] = (struct sentence_piece){0};
        s->num_pieces = grown;
    }
    struct sentence_piece *p = &s->pieces[id];
    *p = (struct sentence_piece){.at = s->texts.len, .kind = (uint8_t)kind};
    p->spaced = len >= 3 && !memcmp(text, escaped_space, 3);
    add_spaced(&s->texts, text, len);
    p->len = (uint32_t)(s->texts.len - p->at);
}

void sentence_finish(struct sentence *s, const struct vocabulary *v)
{
    s->joins = heap(256 * sizeof *s->joins);
    if (s->whole_words) memset(s->joins, 1, 256 * sizeof *s->joins);
    for (int i = 0; i < 128; i++) s->ascii_id[i] = vocabulary_find(v, &(char){(char)i}, 1);
    for (int32_t i = 0; i < v->count; i++) {
        const unsigned char *at = v->bytes + v->tokens[i].at;
        for (uint32_t k = 1; k < v->tokens[i].len; k++) s->joins[at[k - 1]][at[k]] = 1;
    }
    for (int i = 0; s->cuts_words && i < 256; i++) s->joins[i][' '] = 0;
}

static bool begins_with_space(const struct sentence *s, const unsigned char *text, size_t len)
{
    return text[0] == ' ' || (s->escapes && len >= 3 && !memcmp(text, escaped_space, 3));
}

/* What the next character becomes; its length there in *size.  The answer may point into `text`. */
static const char *next_normal(const struct sentence *s, const unsigned char *text, size_t left,
                               size_t *size, size_t *len)
{
    int bytes;
    if (matcher_may(&s->kept, text[0]) && matcher_find(&s->kept, text, left, size) >= 0) {
        *len = *size;
        return (const char *)text;
    }
    const char *mapped = charsmap_find(&s->charsmap, text, left, size);
    if (mapped) {
        *len = strlen(mapped);
        return mapped;
    }
    unicode_decode(text, left, &bytes);
    bool broken = s->replaces && bytes == 1 && text[0] >= 0x80;
    *size = (size_t)bytes;
    *len = broken ? 3 : *size;
    return broken ? replacement : (const char *)text;
}

/* SentencePiece's way where it is not the identity. */
static void normalize_mapped(const struct sentence *s, const unsigned char *text, size_t len,
                             struct text *out)
{
    size_t at = 0, begin = out->len, size, n;
    while (s->squeezes && at < len) {
        const char *normal = next_normal(s, text + at, len - at, &size, &n);
        if (n != 1 || normal[0] != ' ') break;
        at += size;
    }
    if (at == len) return;
    if (s->prefix != PREFIX_NEVER) text_add(out, " ", 1);
    for (bool after_space = s->squeezes; at < len; at += size) {
        const char *normal = next_normal(s, text + at, len - at, &size, &n);
        while (after_space && n && normal[0] == ' ') normal++, n--;
        if (n) {
            sentence_spell(s, normal, n, out);
            after_space = s->squeezes && normal[n - 1] == ' ';
        }
    }
    while (s->squeezes && out->len > begin && out->data[out->len - 1] == ' ')
        out->data[--out->len] = 0;
}

void sentence_normalize(const struct sentence *s, const unsigned char *text, size_t len, bool first,
                        struct text *out)
{
    if (!len) return;
    text_reserve(out, len + 1);
    if (s->maps || (s->checks && !utf8_valid((const char *)text, len))) {
        normalize_mapped(s, text, len, out);
        return;
    }
    bool prefix = s->prefix == PREFIX_ALWAYS || (s->prefix == PREFIX_FIRST && first) ||
                  s->prefix == PREFIX_MISSING;
    if (prefix && s->prefix != PREFIX_ALWAYS) prefix = !begins_with_space(s, text, len);
    if (prefix) text_add(out, " ", 1);
    sentence_spell(s, (const char *)text, len, out);
}

size_t sentence_cut(const struct sentence *s, const unsigned char *text, size_t len)
{
    size_t at = 1;
    while (at < len && (s->joins[text[at - 1]][text[at]] || (text[at] & 0xC0) == 0x80)) at++;
    return at;
}

/* The tokens of the bytes, or unknown. */
static size_t fall_back(const struct sentence *s, const unsigned char *bytes, size_t len,
                        int32_t *ids)
{
    bool all = s->falls_back;
    if (s->escapes && len == 1 && *bytes == ' ')
        bytes = (const unsigned char *)escaped_space, len = 3;
    for (size_t i = 0; i < len && all; i++) all = (ids[i] = s->byte_id[bytes[i]]) >= 0;
    if (all) return len;
    if (s->unknown < 0) return 0;
    ids[0] = s->unknown;
    return 1;
}

size_t sentence_symbols(const struct sentence *s, const struct vocabulary *v,
                        const unsigned char *text, size_t len, int32_t *ids)
{
    size_t count = 0;
    bool was_unknown = false;
    for (size_t at = 0; at < len;) {
        int size = 1;
        const unsigned char *character = text + at;
        if (text[at] >= 0x80) unicode_decode(character, len - at, &size);
        at += (size_t)size;
        size_t bytes = (size_t)size;
        if (s->replaces && size == 1 && *character >= 0x80)
            character = (const unsigned char *)replacement, bytes = 3;
        int32_t id =
            *character < 0x80 ? s->ascii_id[*character] : vocabulary_find(v, character, bytes);
        size_t more = 1;
        if (id >= 0)
            ids[count] = id;
        else
            more = fall_back(s, character, bytes, ids + count);
        bool unknown = id < 0 && more == 1 && ids[count] == s->unknown;
        count += unknown && was_unknown && s->fuses ? 0 : more;
        was_unknown = unknown;
    }
    return count;
}

void sentence_settle(const struct sentence *s, const struct vocabulary *v, struct token_list *out,
                     size_t begin)
{
    size_t count = out->count;
    bool made = false;
    if (s->first_made >= v->most) return;
    for (size_t i = begin; i < count; i++) made |= out->ids[i] >= s->first_made;
    if (!made) return;
    size_t num = count - begin;
    int32_t *ids = heap(num * sizeof *ids);
    memcpy(ids, out->ids + begin, num * sizeof *ids);
    out->count = begin;
    token_list_reserve(out, 4 * num);
    for (size_t i = 0; i < num; i++) {
        const struct token_bytes *t = vocabulary_token(v, ids[i]);
        if (ids[i] < s->first_made || !t)
            out->ids[out->count++] = ids[i];
        else
            out->count += fall_back(s, v->bytes + t->at, t->len, out->ids + out->count);
    }
    free(ids);
}

void sentence_fuse(const struct sentence *s, struct token_list *out, size_t begin)
{
    size_t to = begin;
    if (!s->fuses || s->unknown < 0) return;
    for (size_t i = begin; i < out->count; i++) {
        if (to > begin && out->ids[i] == s->unknown && out->ids[to - 1] == s->unknown) continue;
        out->ids[to++] = out->ids[i];
    }
    out->count = to;
}

/* Bytes that byte tokens gave, from out[begin] on: what is not UTF-8 becomes U+FFFD. */
static void settle_bytes(const struct sentence *s, struct text *out, size_t begin)
{
    size_t len = out->len - begin;
    bool broken = false;
    const unsigned char *text = (const unsigned char *)out->data + begin;
    int size = 1;
    for (size_t at = 0; at < len; at += (size_t)size) {
        unicode_decode(text + at, len - at, &size);
        broken |= size == 1 && text[at] >= 0x80;
    }
    if (!broken) return;
    char *copy = heap_string((const char *)text, len);
    out->len = begin;
    for (size_t at = 0; at < len; at += (size_t)size) {
        const unsigned char *c = (const unsigned char *)copy + at;
        unicode_decode(c, len - at, &size);
        if (s->strict_bytes) size = 1;
        if (s->strict_bytes || (size == 1 && *c >= 0x80))
            text_adds(out, replacement);
        else
            text_add(out, c, (size_t)size);
    }
    free(copy);
}

/* Where the decoding of a text stands. */
struct decoding {
    size_t begin, bytes; /* of the text; of the byte tokens that came last, SIZE_MAX: none */
    bool whole, begins;
    bool closed; /* the space of the prefix is dropped, or will not be */
};

static void decode_text(const struct sentence *s, const struct sentence_piece *p,
                        struct decoding *d, struct text *out)
{
    const char *text = s->texts.data + p->at;
    size_t len = p->len;
    bool first = d->whole && d->begins;
    d->begins = false;
    if (s->start == START_DROPS_TOKEN_SPACES && first)
        while (len && *text == ' ') text++, len--;
    if (s->start == START_SENTENCEPIECE || s->start == START_SENTENCEPIECE_ALL) {
        d->closed |= !d->whole || out->len > d->begin;
        if (!d->closed && p->spaced) {
            text++, len--;
            d->closed = s->start == START_SENTENCEPIECE;
        }
    }
    text_add(out, text, len);
}

enum status sentence_decode(const struct sentence *s, const int32_t *ids, size_t count, bool whole,
                            struct text *out)
{
    struct decoding d = {out->len, SIZE_MAX, whole, true, false};
    for (size_t i = 0; i < count; i++) {
        const struct sentence_piece *p =
            ids[i] >= 0 && ids[i] < s->num_pieces ? &s->pieces[ids[i]] : NULL;
        if (!p || p->kind == PIECE_NONE)
            FAIL(DATA, "there is no token %d; the vocabulary has %d", ids[i], s->num_pieces);
        if (p->kind == PIECE_BYTE) {
            if (d.bytes == SIZE_MAX) d.bytes = out->len;
            text_add(out, &p->byte, 1);
            d.begins = false;
            continue;
        }
        if (d.bytes != SIZE_MAX && whole) settle_bytes(s, out, d.bytes);
        d.bytes = SIZE_MAX;
        decode_text(s, p, &d, out);
    }
    if (d.bytes != SIZE_MAX && whole) settle_bytes(s, out, d.bytes);
    if (whole && s->start == START_DROPS_SPACE && out->len > d.begin && out->data[d.begin] == ' ') {
        memmove(out->data + d.begin, out->data + d.begin + 1, out->len - d.begin);
        out->len--;
    }
    return STATUS_OK;
}
