// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/char_bpe.h"

#include "base/json.h"
#include "tokenizer/text/unicode.h"

#include <stdlib.h>
#include <string.h>

static const char escaped_space[] = "\xE2\x96\x81", replacement[] = "\xEF\xBF\xBD";

struct char_bpe *char_bpe_make(void)
{
    struct char_bpe *c = heap(sizeof *c);
    c->unknown_id = -1;
    for (int i = 0; i < 256; i++) c->byte_ids[i] = -1;
    for (int i = 0; i < 128; i++) c->ascii_ids[i] = -1;
    text_adds(&c->texts, "");
    return c;
}

void char_bpe_free(struct char_bpe *c)
{
    if (!c) return;
    charsmap_release(&c->charsmap);
    matcher_release(&c->user_defined_raw);
    matcher_release(&c->user_defined);
    text_release(&c->texts);
    free(c->pieces);
    free(c->adjacent);
    free(c);
}

/* Appends the text with each U+2581 replaced by a space. */
static void append_unescaped(struct text *out, const char *text, size_t len)
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

void char_bpe_unescape(const struct char_bpe *c, const char *text, size_t len, struct text *out)
{
    if (c->escapes_spaces)
        append_unescaped(out, text, len);
    else
        text_add(out, text, len);
}

int char_bpe_parse_byte(const char *text, size_t len, bool upper)
{
    static const char digits[] = "0123456789ABCDEFabcdef";
    if (len != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
    const char *high = memchr(digits, text[3], upper ? 16 : 22);
    const char *low = memchr(digits, text[4], upper ? 16 : 22);
    if (!high || !low) return -1;
    int first = (int)(high - digits), second = (int)(low - digits);
    return (first > 15 ? first - 6 : first) << 4 | (second > 15 ? second - 6 : second);
}

void char_bpe_add_piece(struct char_bpe *c, int32_t id, enum char_bpe_piece_kind kind,
                        const char *text, size_t len)
{
    if (id >= c->num_pieces) {
        int32_t grown = id + 1 > 2 * c->num_pieces ? id + 1 : 2 * c->num_pieces;
        c->pieces = heap_grow(c->pieces, (size_t)grown, sizeof *c->pieces);
        for (int32_t i = c->num_pieces; i < grown; i++) c->pieces[i] = (struct char_bpe_piece){0};
        c->num_pieces = grown;
    }
    struct char_bpe_piece *p = &c->pieces[id];
    *p = (struct char_bpe_piece){.at = c->texts.len, .kind = (uint8_t)kind};
    p->starts_with_space = len >= 3 && !memcmp(text, escaped_space, 3);
    append_unescaped(&c->texts, text, len);
    p->len = (uint32_t)(c->texts.len - p->at);
    for (size_t i = 0; i < len; i++)
        if (len - i >= 3 && !memcmp(text + i, escaped_space, 3))
            i += 2;
        else
            text_add(&c->texts, text + i, 1);
    p->bare_len = (uint32_t)(c->texts.len - p->at - p->len);
}

static bool has_ascii_token(const struct char_bpe *c, int byte)
{
    return byte < 128 && c->ascii_ids[byte] >= 0;
}

void char_bpe_finish(struct char_bpe *c, const struct vocabulary *v)
{
    while (c->num_pieces && c->pieces[c->num_pieces - 1].kind == PIECE_NONE) c->num_pieces--;
    c->adjacent = heap(256 * sizeof *c->adjacent);
    if (c->looks_up_words) memset(c->adjacent, 1, 256 * sizeof *c->adjacent);
    for (int i = 0; i < 128; i++) c->ascii_ids[i] = vocabulary_find(v, &(char){(char)i}, 1);
    bool drops = c->unknown_id < 0 && !c->byte_fallback; /* merges cross what is dropped */
    for (int i = 0; drops && i < 256; i++)
        for (int k = 0; k < 256; k++)
            c->adjacent[i][k] |= !(has_ascii_token(c, i) && has_ascii_token(c, k));
    for (int32_t i = 0; i < v->count; i++) {
        const unsigned char *at = v->bytes + v->tokens[i].at;
        for (uint32_t k = 1; k < v->tokens[i].len; k++) c->adjacent[at[k - 1]][at[k]] = 1;
    }
    for (int i = 0; c->splits_words && i < 256; i++) c->adjacent[i][' '] = 0;
}

static bool starts_with_space(const struct char_bpe *c, const unsigned char *text, size_t len)
{
    return text[0] == ' ' || (c->escapes_spaces && len >= 3 && !memcmp(text, escaped_space, 3));
}

/* Returns the normalized form, of length *len, of the next character or mapped string, which takes
 * *size bytes of the text.  The result may point into `text`. */
static const char *normalize_next(const struct char_bpe *c, const unsigned char *text, size_t left,
                                  size_t *size, size_t *len)
{
    int bytes;
    if (matcher_may_start(&c->user_defined_raw, text[0]) &&
        matcher_find(&c->user_defined_raw, text, left, size) >= 0) {
        *len = *size;
        return (const char *)text;
    }
    const char *mapped = charsmap_find(&c->charsmap, text, left, size);
    if (mapped) {
        *len = strlen(mapped);
        return mapped;
    }
    unicode_decode(text, left, &bytes);
    bool invalid = c->replaces_invalid && bytes == 1 && text[0] >= 0x80;
    *size = (size_t)bytes;
    *len = invalid ? 3 : *size;
    return invalid ? replacement : (const char *)text;
}

/* SentencePiece's normalizer, for models in which it is not the identity. */
static void normalize_mapped(const struct char_bpe *c, const unsigned char *text, size_t len,
                             struct text *out)
{
    size_t at = 0, begin = out->len, size, n;
    while (c->removes_extra_spaces && at < len) {
        const char *normal = normalize_next(c, text + at, len - at, &size, &n);
        if (n != 1 || normal[0] != ' ') break;
        at += size;
    }
    if (at == len) return;
    if (c->prefix != PREFIX_NEVER) text_add(out, " ", 1);
    for (bool after_space = c->removes_extra_spaces; at < len; at += size) {
        const char *normal = normalize_next(c, text + at, len - at, &size, &n);
        while (after_space && n && normal[0] == ' ') normal++, n--;
        if (n) {
            char_bpe_unescape(c, normal, n, out);
            after_space = c->removes_extra_spaces && normal[n - 1] == ' ';
        }
    }
    while (c->removes_extra_spaces && out->len > begin && out->data[out->len - 1] == ' ')
        out->data[--out->len] = 0;
}

void char_bpe_normalize(const struct char_bpe *c, const unsigned char *text, size_t len, bool first,
                        struct text *out)
{
    if (!len) return;
    text_reserve(out, len + 1);
    if (c->maps_characters || (c->maps_invalid_utf8 && !text_is_utf8((const char *)text, len))) {
        normalize_mapped(c, text, len, out);
        return;
    }
    bool prefix = c->prefix == PREFIX_ALWAYS || (c->prefix == PREFIX_FIRST && first) ||
                  c->prefix == PREFIX_MISSING;
    if (prefix && c->prefix != PREFIX_ALWAYS) prefix = !starts_with_space(c, text, len);
    if (prefix) text_add(out, " ", 1);
    char_bpe_unescape(c, (const char *)text, len, out);
}

size_t char_bpe_segment(const struct char_bpe *c, const unsigned char *text, size_t len)
{
    size_t at = 1;
    while (at < len && (c->adjacent[text[at - 1]][text[at]] || (text[at] & 0xC0) == 0x80)) at++;
    return at;
}

size_t char_bpe_encode_unknown(const struct char_bpe *c, const unsigned char *bytes, size_t len,
                               int32_t *ids)
{
    bool all = c->byte_fallback;
    if (c->escapes_spaces && len == 1 && *bytes == ' ')
        bytes = (const unsigned char *)escaped_space, len = 3;
    for (size_t i = 0; i < len && all; i++) all = (ids[i] = c->byte_ids[bytes[i]]) >= 0;
    if (all) return len;
    if (c->unknown_id < 0) return 0;
    ids[0] = c->unknown_id;
    return 1;
}

size_t char_bpe_initial_ids(const struct char_bpe *c, const struct vocabulary *v,
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
        if (c->replaces_invalid && size == 1 && *character >= 0x80)
            character = (const unsigned char *)replacement, bytes = 3;
        int32_t id =
            *character < 0x80 ? c->ascii_ids[*character] : vocabulary_find(v, character, bytes);
        size_t more = 1;
        if (id >= 0)
            ids[count] = id;
        else
            more = char_bpe_encode_unknown(c, character, bytes, ids + count);
        bool unknown = id < 0 && more == 1 && ids[count] == c->unknown_id;
        count += unknown && was_unknown && c->fuses_unknown ? 0 : more;
        was_unknown = unknown;
    }
    return count;
}

void char_bpe_expand_internal(const struct char_bpe *c, const struct vocabulary *v,
                              struct token_list *out, size_t begin)
{
    size_t count = out->count;
    bool found = false;
    if (c->first_internal_id >= v->id_limit) return;
    for (size_t i = begin; i < count; i++) found |= out->ids[i] >= c->first_internal_id;
    if (!found) return;
    size_t num = count - begin;
    int32_t *ids = heap(num * sizeof *ids);
    memcpy(ids, out->ids + begin, num * sizeof *ids);
    out->count = begin;
    token_list_reserve(out, 4 * num);
    for (size_t i = 0; i < num; i++) {
        const struct token_bytes *t = vocabulary_token(v, ids[i]);
        if (ids[i] < c->first_internal_id || !t)
            out->ids[out->count++] = ids[i];
        else
            out->count +=
                char_bpe_encode_unknown(c, v->bytes + t->at, t->len, out->ids + out->count);
    }
    free(ids);
}

void char_bpe_fuse_unknown(const struct char_bpe *c, struct token_list *out, size_t begin)
{
    size_t to = begin;
    if (!c->fuses_unknown || c->unknown_id < 0) return;
    for (size_t i = begin; i < out->count; i++) {
        if (to > begin && out->ids[i] == c->unknown_id && out->ids[to - 1] == c->unknown_id)
            continue;
        out->ids[to++] = out->ids[i];
    }
    out->count = to;
}

/* Replaces invalid UTF-8 from out[begin] on, where the bytes of a run of byte tokens are. */
static void replace_invalid_utf8(const struct char_bpe *c, struct text *out, size_t begin)
{
    size_t len = out->len - begin;
    bool invalid = false;
    const unsigned char *text = (const unsigned char *)out->data + begin;
    int size = 1;
    for (size_t at = 0; at < len; at += (size_t)size) {
        unicode_decode(text + at, len - at, &size);
        invalid |= size == 1 && text[at] >= 0x80;
    }
    if (!invalid) return;
    char *copy = heap_string((const char *)text, len);
    out->len = begin;
    for (size_t at = 0; at < len; at += (size_t)size) {
        const unsigned char *next = (const unsigned char *)copy + at;
        unicode_decode(next, len - at, &size);
        if (c->strict_bytes) size = 1;
        if (c->strict_bytes || (size == 1 && *next >= 0x80))
            text_adds(out, replacement);
        else
            text_add(out, next, (size_t)size);
    }
    free(copy);
}

struct decode_state {
    size_t begin;    /* of the text, in the output */
    size_t bytes;    /* of the current run of byte tokens, in the output; SIZE_MAX: none */
    bool is_start;   /* the IDs start a text */
    bool is_first;   /* nothing has been decoded yet */
    bool strip_done; /* no more spaces will be stripped */
};

static void decode_piece(const struct char_bpe *c, const struct char_bpe_piece *p,
                         struct decode_state *d, struct text *out)
{
    const char *text = c->texts.data + p->at;
    size_t len = p->len;
    bool first = d->is_start && d->is_first;
    d->is_first = false;
    if (c->strip == STRIP_FIRST_TOKEN && first) text += len, len = p->bare_len;
    if (c->strip == STRIP_FIRST_TEXT_PIECE || c->strip == STRIP_UNTIL_TEXT) {
        d->strip_done |= !d->is_start || out->len > d->begin;
        if (!d->strip_done && p->starts_with_space) {
            text++, len--;
            d->strip_done = c->strip == STRIP_FIRST_TEXT_PIECE;
        }
    }
    text_add(out, text, len);
}

const struct char_bpe_piece *char_bpe_find_piece(const struct char_bpe *c, int32_t id)
{
    const struct char_bpe_piece *p = id >= 0 && id < c->num_pieces ? &c->pieces[id] : NULL;
    return p && p->kind != PIECE_NONE ? p : NULL;
}

enum status char_bpe_decode(const struct char_bpe *c, const int32_t *ids, size_t count,
                            bool is_start, struct text *out)
{
    struct decode_state d = {out->len, SIZE_MAX, is_start, true, false};
    for (size_t i = 0; i < count; i++) {
        const struct char_bpe_piece *p = char_bpe_find_piece(c, ids[i]);
        if (!p)
            FAIL(DATA, "unknown token ID %d; the vocabulary has %d tokens", ids[i], c->num_pieces);
        if (p->kind == PIECE_BYTE) {
            if (d.bytes == SIZE_MAX) d.bytes = out->len;
            text_add(out, &p->byte, 1);
            d.is_first = false;
            continue;
        }
        if (d.bytes != SIZE_MAX && is_start) replace_invalid_utf8(c, out, d.bytes);
        d.bytes = SIZE_MAX;
        decode_piece(c, p, &d, out);
    }
    if (d.bytes != SIZE_MAX && is_start) replace_invalid_utf8(c, out, d.bytes);
    if (is_start && c->strip == STRIP_ONE_SPACE && out->len > d.begin &&
        out->data[d.begin] == ' ') {
        memmove(out->data + d.begin, out->data + d.begin + 1, out->len - d.begin);
        out->len--;
    }
    return STATUS_OK;
}
