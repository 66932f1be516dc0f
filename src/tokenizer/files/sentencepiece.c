/* sentencepiece.c -- the .model files of SentencePiece: a protocol buffer. */
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"
#include "tokenizer/export.h"
#include "tokenizer/kinds.h"
#include "tokenizer/sentence.h"
#include "tokenizer/text/unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PIECE_BYTES = 1024 }; /* their cuts are looked up, all of them */

enum piece_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE, TYPES };

struct model_piece {
    const char *text;
    size_t len;
    float score;
    int32_t id; /* also of the character made for it */
    uint8_t type;
};

struct bytes {
    const char *at;
    size_t len;
};

struct model {
    const char *path;
    struct model_piece *pieces;
    size_t count, room;
    uint64_t model_type, byte_fallback, suffix;
    bool has_trainer, has_normalizer;
    struct bytes bos, eos, unknown_surface;
    struct bytes charsmap, denormalizer;
    uint64_t dummy_prefix, squeezes, escapes;
};

/* One field of a message: a number, or bytes. */
struct field {
    uint32_t number, wire;
    uint64_t value;
    struct reader bytes;
};

enum wire { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

static enum status read_varint(struct reader *r, uint64_t *out, const char *what)
{
    uint8_t byte;
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        TRY(reader_u8(r, &byte, what));
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) return STATUS_OK;
    }
    FAIL(DATA, "%s: %s is a number of more than ten bytes", r->name, what);
}

static enum status read_field(struct reader *r, struct field *f)
{
    uint64_t key, len;
    uint32_t word;
    const unsigned char *at;
    TRY(read_varint(r, &key, "a field's key"));
    if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF)
        FAIL(DATA, "%s: no field has the number %llu", r->name, (unsigned long long)(key >> 3));
    *f = (struct field){.number = (uint32_t)(key >> 3), .wire = key & 7};
    switch (f->wire) {
    case WIRE_VARINT: return read_varint(r, &f->value, "a number");
    case WIRE_64: return reader_u64(r, &f->value, "an 8-byte field");
    case WIRE_32:
        TRY(reader_u32(r, &word, "a 4-byte field"));
        f->value = word;
        return STATUS_OK;
    case WIRE_BYTES:
        TRY(read_varint(r, &len, "a field's length"));
        if (len > reader_left(r))
            FAIL(DATA, "%s: field %u has %llu bytes, the file %zu more", r->name, f->number,
                 (unsigned long long)len, reader_left(r));
        TRY(reader_bytes(r, (size_t)len, &at, "a field"));
        f->bytes = (struct reader){at, at + len, r->name};
        return STATUS_OK;
    default:
        FAIL(DATA, "%s: field %u has the wire type %u; 0, 1, 2 and 5 are known", r->name, f->number,
             f->wire);
    }
}

static struct bytes bytes_of(const struct field *f)
{
    return (struct bytes){(const char *)f->bytes.at, reader_left(&f->bytes)};
}

static bool is(const struct field *f, uint32_t number, enum wire wire)
{
    return f->number == number && f->wire == (uint32_t)wire;
}

static enum status read_piece(struct model *m, struct reader r)
{
    struct model_piece p = {.type = NORMAL, .text = ""};
    struct field f;
    uint32_t bits = 0;
    size_t id = m->count;
    while (reader_left(&r)) {
        TRY(read_field(&r, &f));
        if (is(&f, 1, WIRE_BYTES)) p.text = bytes_of(&f).at, p.len = bytes_of(&f).len;
        if (is(&f, 2, WIRE_32)) bits = (uint32_t)f.value;
        if (is(&f, 3, WIRE_VARINT)) p.type = f.value < TYPES ? (uint8_t)f.value : 0;
    }
    memcpy(&p.score, &bits, sizeof bits);
    if (p.type < NORMAL || p.type >= TYPES)
        FAIL(UNSUPPORTED, "%s: piece %zu is of no known type", m->path, id);
    if (p.type == UNUSED) FAIL(UNSUPPORTED, "%s: piece %zu is marked as unused", m->path, id);
    if (!isfinite(p.score)) FAIL(DATA, "%s: the score of piece %zu is not finite", m->path, id);
    if (!p.len || p.len > MOST_PIECE_BYTES || !utf8_valid(p.text, p.len))
        FAIL(DATA, "%s: piece %zu has %zu bytes; wanted: UTF-8 of 1 to %d bytes", m->path, id,
             p.len, MOST_PIECE_BYTES);
    if (m->count == VOCABULARY_MOST_ID / 2) FAIL(DATA, "%s: too many pieces", m->path);
    if (m->count == m->room) {
        m->room = 2 * m->room + 1024;
        m->pieces = heap_grow(m->pieces, m->room, sizeof *m->pieces);
    }
    p.id = (int32_t)id;
    m->pieces[m->count++] = p;
    return STATUS_OK;
}

static enum status read_trainer(struct model *m, struct reader r)
{
    struct field f;
    while (reader_left(&r)) {
        TRY(read_field(&r, &f));
        if (is(&f, 3, WIRE_VARINT)) m->model_type = f.value;
        if (is(&f, 24, WIRE_VARINT)) m->suffix = f.value;
        if (is(&f, 35, WIRE_VARINT)) m->byte_fallback = f.value;
        if (is(&f, 44, WIRE_BYTES)) m->unknown_surface = bytes_of(&f);
        if (is(&f, 46, WIRE_BYTES)) m->bos = bytes_of(&f);
        if (is(&f, 47, WIRE_BYTES)) m->eos = bytes_of(&f);
    }
    return STATUS_OK;
}

static enum status read_normalizer(struct model *m, struct reader r)
{
    struct field f;
    while (reader_left(&r)) {
        TRY(read_field(&r, &f));
        if (is(&f, 2, WIRE_BYTES)) m->charsmap = bytes_of(&f);
        if (is(&f, 3, WIRE_VARINT)) m->dummy_prefix = f.value;
        if (is(&f, 4, WIRE_VARINT)) m->squeezes = f.value;
        if (is(&f, 5, WIRE_VARINT)) m->escapes = f.value;
    }
    return STATUS_OK;
}

static enum status read_denormalizer(struct model *m, struct reader r)
{
    struct field f;
    while (reader_left(&r)) {
        TRY(read_field(&r, &f));
        if (is(&f, 2, WIRE_BYTES)) m->denormalizer = bytes_of(&f);
    }
    return STATUS_OK;
}

static enum status read_message(struct model *m, struct reader r)
{
    struct field f;
    while (reader_left(&r)) {
        TRY(read_field(&r, &f));
        if (is(&f, 1, WIRE_BYTES)) TRY(read_piece(m, f.bytes));
        if (is(&f, 2, WIRE_BYTES)) {
            m->has_trainer = true;
            TRY(read_trainer(m, f.bytes));
        }
        if (is(&f, 3, WIRE_BYTES)) {
            m->has_normalizer = true;
            TRY(read_normalizer(m, f.bytes));
        }
        if (is(&f, 5, WIRE_BYTES)) TRY(read_denormalizer(m, f.bytes));
    }
    return STATUS_OK;
}

static enum status check_kind(const struct model *m)
{
    static const char *const names[] = {"", "unigram", "BPE", "word", "char"};
    enum { BPE = 2 };
    if (!m->count) FAIL(DATA, "%s: there are no pieces", m->path);
    if (!m->has_trainer || !m->has_normalizer)
        FAIL(DATA, "%s: there is no %s_spec", m->path, m->has_trainer ? "normalizer" : "trainer");
    if (m->model_type != BPE)
        FAIL(UNSUPPORTED, "%s: a SentencePiece %s model; only BPE is known", m->path,
             m->model_type < 5 ? names[m->model_type] : "");
    if (m->suffix) FAIL(UNSUPPORTED, "%s: treat_whitespace_as_suffix", m->path);
    if (m->denormalizer.len) FAIL(UNSUPPORTED, "%s: a denormalizer", m->path);
    return STATUS_OK;
}

static enum status add_byte(struct tokenizer *t, const struct model_piece *p)
{
    struct sentence *s = t->sentence;
    int byte = sentence_byte_named(p->text, p->len, true);
    if (!s->falls_back || byte < 0 || s->byte_id[byte] >= 0)
        FAIL(DATA, "%s: piece %d is a byte, but %s", t->path, p->id,
             !s->falls_back ? "byte_fallback is off"
             : byte < 0     ? "names none"
                            : "another piece is the same");
    s->byte_id[byte] = p->id;
    sentence_add_piece(s, p->id, PIECE_BYTE, p->text, p->len);
    s->pieces[p->id].byte = (uint8_t)byte;
    return STATUS_OK;
}

static enum status add_unknown(struct tokenizer *t, const struct model *m,
                               const struct model_piece *p)
{
    struct sentence *s = t->sentence;
    if (s->unknown >= 0)
        FAIL(DATA, "%s: pieces %d and %d are both unknown", t->path, s->unknown, p->id);
    s->unknown = p->id;
    sentence_add_piece(s, p->id, PIECE_UNKNOWN, m->unknown_surface.at, m->unknown_surface.len);
    return STATUS_OK;
}

/* A piece whose text has U+FFFD beside others asks for the normalized text. */
static bool has_replacement(const struct model_piece *p)
{
    for (size_t i = 0; p->len > 3 && i + 3 <= p->len; i++)
        if (!memcmp(p->text + i, "\xEF\xBF\xBD", 3)) return true;
    return false;
}

static enum status add_found(struct tokenizer *t, const struct model_piece *p, struct text *here)
{
    struct sentence *s = t->sentence;
    text_clear(here);
    sentence_spell(s, p->text, p->len, here);
    sentence_add_piece(s, p->id, PIECE_TEXT, p->text, p->len);
    /* what a normalized text cannot have is only decoded */
    bool spaced = s->escapes && memchr(p->text, ' ', p->len);
    if (p->type == USER_DEFINED) TRY(matcher_add(&s->kept, p->text, p->len, p->id));
    if (p->type == USER_DEFINED && !spaced)
        TRY(matcher_add(&s->frozen, here->data, here->len, p->id));
    if (!spaced) TRY(vocabulary_add(&t->vocabulary, here->data, here->len, p->id));
    s->checks |= has_replacement(p);
    return STATUS_OK;
}

static enum status add_pieces(struct tokenizer *t, const struct model *m)
{
    struct text here = {0};
    enum status st = STATUS_OK;
    for (size_t i = 0; i < m->count && !st; i++) {
        const struct model_piece *p = &m->pieces[i];
        if (p->type == BYTE)
            TRY_OUT(add_byte(t, p));
        else if (p->type == UNKNOWN)
            TRY_OUT(add_unknown(t, m, p));
        else if (p->type == CONTROL)
            sentence_add_piece(t->sentence, p->id, PIECE_CONTROL, "", 0);
        else if (add_found(t, p, &here))
            FAIL_OUT(DATA, "%s: %s", t->path, status_message());
        if (p->type == CONTROL || p->type == UNKNOWN) {
            char *name = heap_string(p->text, p->len);
            specials_add(&t->specials, name, p->id);
            free(name);
        }
    }
    if (t->sentence->unknown < 0) FAIL_OUT(DATA, "%s: no piece is the unknown one", t->path);
    for (int i = 0; t->sentence->falls_back && i < 256; i++)
        if (t->sentence->byte_id[i] < 0)
            FAIL_OUT(DATA, "%s: byte_fallback, but no piece is the byte 0x%02X", t->path, i);
out:
    text_release(&here);
    return st;
}

/* Characters that only occur in longer pieces can still be merged: they get ids of their own. */
static enum status add_characters(struct tokenizer *t)
{
    struct vocabulary *v = &t->vocabulary;
    int32_t count = v->count, made = t->sentence->first_made;
    unsigned char character[4];
    for (int32_t i = 0; i < count; i++)
        for (size_t at = 0, len = v->tokens[i].len; at < len;) {
            int size;
            unicode_decode(v->bytes + v->tokens[i].at + at, len - at, &size);
            memcpy(character, v->bytes + v->tokens[i].at + at, (size_t)size);
            at += (size_t)size;
            if (vocabulary_find(v, character, (size_t)size) >= 0) continue;
            TRY(vocabulary_add(v, character, (size_t)size, made++));
        }
    vocabulary_trim(v);
    return STATUS_OK;
}

static int by_score(const void *a, const void *b)
{
    const struct model_piece *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Every cut of a piece is a merge; the higher the score, the sooner.  Sorts the pieces. */
static void add_merges(struct vocabulary *v, struct model *m)
{
    int32_t rank = 0;
    qsort(m->pieces, m->count, sizeof *m->pieces, by_score);
    for (size_t i = 0; i < m->count; i++) {
        const struct token_bytes *t = vocabulary_token(v, m->pieces[i].id);
        if (i && m->pieces[i].score < m->pieces[i - 1].score) rank++;
        for (size_t cut = 1; t && cut < t->len; cut++) {
            const unsigned char *text = v->bytes + t->at;
            if ((text[cut] & 0xC0) == 0x80) continue;
            int32_t left = vocabulary_find(v, text, cut);
            int32_t right = vocabulary_find(v, text + cut, t->len - cut);
            if (left >= 0 && right >= 0) vocabulary_add_pair(v, left, right, rank, t->id);
        }
    }
}

static int32_t control_piece(const struct tokenizer *t, struct bytes name)
{
    char *text = heap_string(name.at, name.len);
    int32_t id = specials_id(&t->specials, text);
    free(text);
    return id == t->sentence->unknown ? -1 : id;
}

static enum status build(struct tokenizer *t, struct model *m)
{
    struct sentence *s = t->sentence = sentence_make();
    TRY(check_kind(m));
    s->escapes = m->escapes;
    s->squeezes = m->squeezes;
    s->falls_back = m->byte_fallback;
    s->prefix = m->dummy_prefix ? PREFIX_ALWAYS : PREFIX_NEVER;
    s->replaces = s->fuses = true;
    s->start = s->squeezes       ? START_SENTENCEPIECE_ALL
               : m->dummy_prefix ? START_SENTENCEPIECE
                                 : START_KEEPS;
    s->first_made = t->vocab_size = (int32_t)m->count;
    s->maps = m->squeezes || m->charsmap.len;
    if (m->charsmap.len && charsmap_init(&s->charsmap, m->charsmap.at, m->charsmap.len))
        FAIL(DATA, "%s: %s", t->path, status_message());
    TRY(add_pieces(t, m));
    TRY(add_characters(t));
    add_merges(&t->vocabulary, m);
    sentence_finish(s, &t->vocabulary);
    t->bos = control_piece(t, m->bos);
    t->eos = control_piece(t, m->eos);
    return STATUS_OK;
}

static enum status read_model(const char *path, const char *bytes, size_t len, struct model *m)
{
    const unsigned char *at = (const unsigned char *)bytes;
    *m = (struct model){
        .path = path,
        .model_type = 1,
        .bos = {"<s>", 3},
        .eos = {"</s>", 4},
        .unknown_surface = {" \xE2\x81\x87 ", 5},
        .dummy_prefix = 1,
        .squeezes = 1,
        .escapes = 1,
    };
    return read_message(m, (struct reader){at, at + len, path});
}

enum status sentencepiece_read(struct tokenizer *t, const char *bytes, size_t len)
{
    struct model m;
    enum status st = read_model(t->path, bytes, len, &m);
    if (!st) st = build(t, &m);
    free(m.pieces);
    if (st == STATUS_DATA)
        FAIL(DATA, "%s (a SentencePiece model that is cut off or damaged)", status_message());
    t->kind = SENTENCEPIECE_KIND;
    t->file_name = "tokenizer.model";
    return st;
}

enum status sentencepiece_export(const struct tokenizer *t, struct token_export *e)
{
    struct model m;
    enum status st = read_model(t->path, t->file.data, t->file.len, &m);
    e->tokens = heap((m.count + 1) * sizeof *e->tokens);
    e->num_tokens = (int32_t)m.count;
    e->adds_space = m.dummy_prefix;
    e->unknown = t->sentence->unknown;
    for (size_t i = 0; i < m.count; i++) {
        const struct model_piece *p = &m.pieces[i];
        e->tokens[i] = (struct exported_token){
            {e->texts.len, (uint32_t)p->len}, (enum token_kind)p->type, p->score};
        text_add(&e->texts, p->text, p->len);
    }
    free(m.pieces);
    return st;
}

static void write_name(const struct tokenizer *t, const char *key, int32_t id, struct text *json)
{
    const char *name = specials_text(&t->specials, id);
    text_addf(json, "  \"%s\": ", key);
    if (name)
        json_quote(json, name);
    else
        text_adds(json, "null");
    text_adds(json, ",\n");
}

void sentencepiece_write_config(const struct tokenizer *t, struct text *json)
{
    text_adds(json, "{\n  \"tokenizer_class\": \"LlamaTokenizer\",\n");
    write_name(t, "bos_token", t->bos, json);
    write_name(t, "eos_token", t->eos, json);
    write_name(t, "unk_token", t->sentence->unknown, json);
    text_addf(json,
              "  \"add_bos_token\": %s,\n  \"add_eos_token\": false,\n"
              "  \"add_prefix_space\": %s,\n  \"legacy\": false,\n"
              "  \"clean_up_tokenization_spaces\": false\n}\n",
              t->bos >= 0 ? "true" : "false",
              t->sentence->prefix == PREFIX_ALWAYS ? "true" : "false");
}
