// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/sentencepiece.h"

#include "base/file.h"
#include "tokenizer/char_bpe.h"
#include "tokenizer/text/unicode.h"
#include "tokenizer/token_table.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/unigram.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PIECE_BYTES = 1024 }; /* all splits of a piece are looked up */
_Static_assert((int)MAX_PIECE_BYTES <= (int)MATCHER_MAX_BYTES, "matcher_add accepts each piece");

enum model_type { UNIGRAM = 1, BPE };

enum piece_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE, TYPES };

struct sp_piece {
    const char *text;
    size_t len;
    float score;
    int32_t id;
    uint8_t type;
};

struct byte_view {
    const char *at;
    size_t len;
};

struct sp_model {
    const char *path;
    struct sp_piece *pieces;
    size_t count, capacity;
    uint64_t model_type, byte_fallback, suffix;
    bool has_trainer, has_normalizer;
    struct byte_view bos, eos, unknown_surface;
    struct byte_view charsmap, denormalizer;
    uint64_t dummy_prefix, removes_extra_spaces, escapes_spaces;
};

/* One field of a message: a number or bytes. */
struct proto_field {
    uint32_t number, wire;
    uint64_t value;
    struct reader bytes;
};

enum wire { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

static enum status read_field(struct reader *r, struct proto_field *f)
{
    uint64_t key, len;
    uint32_t word;
    const unsigned char *at;
    TRY(reader_varint(r, &key, "a field's key"));
    if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF)
        FAIL(DATA, "%s: invalid field number %llu", r->name, (unsigned long long)(key >> 3));
    *f = (struct proto_field){.number = (uint32_t)(key >> 3), .wire = key & 7};
    switch (f->wire) {
    case WIRE_VARINT: return reader_varint(r, &f->value, "a number");
    case WIRE_64: return reader_u64(r, &f->value, "an 8-byte field");
    case WIRE_32:
        TRY(reader_u32(r, &word, "a 4-byte field"));
        f->value = word;
        return STATUS_OK;
    case WIRE_BYTES:
        TRY(reader_varint(r, &len, "a field's length"));
        if (len > reader_left(r))
            FAIL(DATA, "%s: field %u has %llu bytes, but only %zu are left", r->name, f->number,
                 (unsigned long long)len, reader_left(r));
        TRY(reader_bytes(r, (size_t)len, &at, "a field"));
        f->bytes = (struct reader){at, at + len, r->name};
        return STATUS_OK;
    default:
        FAIL(DATA, "%s: field %u has wire type %u; expected 0, 1, 2 or 5", r->name, f->number,
             f->wire);
    }
}

static struct byte_view field_bytes(const struct proto_field *f)
{
    return (struct byte_view){(const char *)f->bytes.at, reader_left(&f->bytes)};
}

static bool field_is(const struct proto_field *f, uint32_t number, enum wire wire)
{
    return f->number == number && f->wire == (uint32_t)wire;
}

static enum status read_piece(struct sp_model *m, struct reader r)
{
    struct sp_piece p = {.type = NORMAL, .text = ""};
    struct proto_field f;
    uint32_t bits = 0;
    size_t id = m->count;
    while (reader_left(&r)) {
        TRY(read_field(&r, &f));
        if (field_is(&f, 1, WIRE_BYTES)) p.text = field_bytes(&f).at, p.len = field_bytes(&f).len;
        if (field_is(&f, 2, WIRE_32)) bits = (uint32_t)f.value;
        if (field_is(&f, 3, WIRE_VARINT)) p.type = f.value < TYPES ? (uint8_t)f.value : 0;
    }
    memcpy(&p.score, &bits, sizeof bits);
    if (p.type < NORMAL || p.type >= TYPES)
        FAIL(UNSUPPORTED, "%s: the type of piece %zu is not supported", m->path, id);
    if (!isfinite(p.score)) FAIL(DATA, "%s: the score of piece %zu is not finite", m->path, id);
    if (!p.len || p.len > MAX_PIECE_BYTES || !text_is_utf8(p.text, p.len))
        FAIL(DATA, "%s: piece %zu has %zu bytes; expected 1 to %d bytes of valid UTF-8", m->path,
             id, p.len, MAX_PIECE_BYTES);
    if (m->count == VOCABULARY_MAX_ID / 2) FAIL(DATA, "%s: too many pieces", m->path);
    if (m->count == m->capacity) {
        m->capacity = 2 * m->capacity + 1024;
        m->pieces = heap_grow(m->pieces, m->capacity, sizeof *m->pieces);
    }
    p.id = (int32_t)id;
    m->pieces[m->count++] = p;
    return STATUS_OK;
}

static enum status read_trainer(struct sp_model *m, struct reader r)
{
    struct proto_field f;
    while (reader_left(&r)) {
        TRY(read_field(&r, &f));
        if (field_is(&f, 3, WIRE_VARINT)) m->model_type = f.value;
        if (field_is(&f, 24, WIRE_VARINT)) m->suffix = f.value;
        if (field_is(&f, 35, WIRE_VARINT)) m->byte_fallback = f.value;
        if (field_is(&f, 44, WIRE_BYTES)) m->unknown_surface = field_bytes(&f);
        if (field_is(&f, 46, WIRE_BYTES)) m->bos = field_bytes(&f);
        if (field_is(&f, 47, WIRE_BYTES)) m->eos = field_bytes(&f);
    }
    return STATUS_OK;
}

static enum status read_normalizer(struct sp_model *m, struct reader r)
{
    struct proto_field f;
    while (reader_left(&r)) {
        TRY(read_field(&r, &f));
        if (field_is(&f, 2, WIRE_BYTES)) m->charsmap = field_bytes(&f);
        if (field_is(&f, 3, WIRE_VARINT)) m->dummy_prefix = f.value;
        if (field_is(&f, 4, WIRE_VARINT)) m->removes_extra_spaces = f.value;
        if (field_is(&f, 5, WIRE_VARINT)) m->escapes_spaces = f.value;
    }
    return STATUS_OK;
}

static enum status read_denormalizer(struct sp_model *m, struct reader r)
{
    struct proto_field f;
    while (reader_left(&r)) {
        TRY(read_field(&r, &f));
        if (field_is(&f, 2, WIRE_BYTES)) m->denormalizer = field_bytes(&f);
    }
    return STATUS_OK;
}

static enum status read_message(struct sp_model *m, struct reader r)
{
    struct proto_field f;
    while (reader_left(&r)) {
        TRY(read_field(&r, &f));
        if (field_is(&f, 1, WIRE_BYTES)) TRY(read_piece(m, f.bytes));
        if (field_is(&f, 2, WIRE_BYTES)) {
            m->has_trainer = true;
            TRY(read_trainer(m, f.bytes));
        }
        if (field_is(&f, 3, WIRE_BYTES)) {
            m->has_normalizer = true;
            TRY(read_normalizer(m, f.bytes));
        }
        if (field_is(&f, 5, WIRE_BYTES)) TRY(read_denormalizer(m, f.bytes));
    }
    return STATUS_OK;
}

static enum status check_kind(const struct sp_model *m)
{
    static const char *const names[] = {"", "unigram", "BPE", "word", "char"};
    if (!m->count) FAIL(DATA, "%s: the model has no pieces", m->path);
    if (!m->has_trainer || !m->has_normalizer)
        FAIL(DATA, "%s: %s_spec is missing", m->path, m->has_trainer ? "normalizer" : "trainer");
    if (m->model_type != BPE && m->model_type != UNIGRAM)
        FAIL(UNSUPPORTED,
             "%s: SentencePiece model type %s is not supported; expected BPE or Unigram", m->path,
             m->model_type < 5 ? names[m->model_type] : "");
    for (size_t i = 0; i < m->count && m->model_type == BPE; i++)
        if (m->pieces[i].type == UNUSED)
            FAIL(UNSUPPORTED, "%s: piece %zu is unused, which is not supported with BPE", m->path,
                 i);
    if (m->suffix) FAIL(UNSUPPORTED, "%s: treat_whitespace_as_suffix is not supported", m->path);
    if (m->denormalizer.len) FAIL(UNSUPPORTED, "%s: a denormalizer is not supported", m->path);
    return STATUS_OK;
}

static enum status add_byte_piece(struct tokenizer *t, const struct sp_piece *p)
{
    struct char_bpe *c = t->char_bpe;
    int byte = char_bpe_parse_byte(p->text, p->len, true);
    if (!c->byte_fallback || byte < 0 || c->byte_ids[byte] >= 0)
        FAIL(DATA, "%s: byte piece %d: %s", t->path, p->id,
             !c->byte_fallback ? "byte_fallback is off"
             : byte < 0        ? "its name is not a byte"
                               : "another piece is the same byte");
    c->byte_ids[byte] = p->id;
    char_bpe_add_piece(c, p->id, PIECE_BYTE, p->text, p->len);
    c->pieces[p->id].byte = (uint8_t)byte;
    return STATUS_OK;
}

static enum status add_unknown_piece(struct tokenizer *t, const struct sp_model *m,
                                     const struct sp_piece *p)
{
    struct char_bpe *c = t->char_bpe;
    if (c->unknown_id >= 0)
        FAIL(DATA, "%s: pieces %d and %d are both of type unknown", t->path, c->unknown_id, p->id);
    c->unknown_id = p->id;
    char_bpe_add_piece(c, p->id, PIECE_UNKNOWN, m->unknown_surface.at, m->unknown_surface.len);
    return STATUS_OK;
}

/* Whether a piece contains U+FFFD and other characters: then invalid UTF-8 must be replaced before
 * merging. */
static bool has_replacement(const struct sp_piece *p)
{
    for (size_t i = 0; p->len > 3 && i + 3 <= p->len; i++)
        if (!memcmp(p->text + i, "\xEF\xBF\xBD", 3)) return true;
    return false;
}

static enum status add_text_piece(struct tokenizer *t, const struct sp_piece *p, bool is_unigram,
                                  struct text *unescaped)
{
    struct char_bpe *c = t->char_bpe;
    text_clear(unescaped);
    char_bpe_unescape(c, p->text, p->len, unescaped);
    char_bpe_add_piece(c, p->id, PIECE_TEXT, p->text, p->len);
    /* a piece that cannot occur in normalized text is only decoded */
    bool spaced = c->escapes_spaces && memchr(p->text, ' ', p->len);
    if (p->type == USER_DEFINED) TRY(matcher_add(&c->user_defined_raw, p->text, p->len, p->id));
    if (p->type == USER_DEFINED && !spaced && !is_unigram)
        TRY(matcher_add(&c->user_defined, unescaped->data, unescaped->len, p->id));
    if (!spaced) TRY(vocabulary_add(&t->vocabulary, unescaped->data, unescaped->len, p->id));
    c->maps_invalid_utf8 |= has_replacement(p);
    return STATUS_OK;
}

static enum status add_pieces(struct tokenizer *t, const struct sp_model *m)
{
    struct text unescaped = {0};
    enum status st = STATUS_OK;
    for (size_t i = 0; i < m->count && !st; i++) {
        const struct sp_piece *p = &m->pieces[i];
        if (p->type == BYTE)
            TRY_OUT(add_byte_piece(t, p));
        else if (p->type == UNKNOWN)
            TRY_OUT(add_unknown_piece(t, m, p));
        else if (p->type == CONTROL)
            char_bpe_add_piece(t->char_bpe, p->id, PIECE_CONTROL, "", 0);
        else
            TRY_PREFIX_OUT(add_text_piece(t, p, m->model_type == UNIGRAM, &unescaped), "%s",
                           t->path);
        if (p->type == CONTROL || p->type == UNKNOWN) {
            char *name = heap_string(p->text, p->len);
            special_tokens_add(&t->special_tokens, name, p->id);
            free(name);
        }
    }
    if (t->char_bpe->unknown_id < 0) FAIL_OUT(DATA, "%s: no piece has type unknown", t->path);
    for (int i = 0; t->char_bpe->byte_fallback && i < 256; i++)
        if (t->char_bpe->byte_ids[i] < 0)
            FAIL_OUT(DATA, "%s: byte_fallback requires a piece for the byte 0x%02X", t->path, i);
out:
    text_release(&unescaped);
    return st;
}

/* Gives internal IDs to characters that occur in pieces but are not pieces, so that they can merge.
 * User-defined symbols are not merged. */
static enum status add_internal_characters(struct tokenizer *t, const struct sp_model *m)
{
    struct vocabulary *v = &t->vocabulary;
    int32_t count = v->count, id = t->char_bpe->first_internal_id;
    unsigned char character[4];
    for (int32_t i = 0; i < count; i++)
        for (size_t at = 0, len = v->tokens[i].len;
             at < len && m->pieces[v->tokens[i].id].type != USER_DEFINED;) {
            int size;
            unicode_decode(v->bytes + v->tokens[i].at + at, len - at, &size);
            memcpy(character, v->bytes + v->tokens[i].at + at, (size_t)size);
            at += (size_t)size;
            if (vocabulary_find(v, character, (size_t)size) >= 0) continue;
            TRY(vocabulary_add(v, character, (size_t)size, id++));
        }
    vocabulary_trim(v);
    return STATUS_OK;
}

static int compare_scores(const void *a, const void *b)
{
    const struct sp_piece *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Adds every split of a piece into two pieces as a merge, ranked by descending score.  Sorts the
 * pieces. */
static void add_merges(struct vocabulary *v, struct sp_model *m)
{
    int32_t rank = 0;
    qsort(m->pieces, m->count, sizeof *m->pieces, compare_scores);
    for (size_t i = 0; i < m->count; i++) {
        const struct token_bytes *t = vocabulary_token(v, m->pieces[i].id);
        if (i && m->pieces[i].score < m->pieces[i - 1].score) rank++;
        for (size_t split = 1; t && split < t->len; split++) {
            const unsigned char *text = v->bytes + t->at;
            if ((text[split] & 0xC0) == 0x80) continue;
            int32_t left = vocabulary_find(v, text, split);
            int32_t right = vocabulary_find(v, text + split, t->len - split);
            if (left >= 0 && right >= 0) vocabulary_add_pair(v, left, right, rank, t->id);
        }
    }
}

static float highest_score(const struct sp_model *m)
{
    float highest = 0.1f;
    for (size_t i = 0; i < m->count; i++)
        if (m->pieces[i].type == NORMAL && m->pieces[i].score > highest)
            highest = m->pieces[i].score;
    return highest;
}

/* As SentencePiece does, gives user-defined symbols positive scores, so that almost any
 * segmentation has them. */
static float unigram_score(const struct sp_model *m, const struct sp_piece *p, float max_score)
{
    bool is_symbol = m->model_type == UNIGRAM && p->type == USER_DEFINED;
    return is_symbol ? (float)((float)p->len * max_score - 0.1) : p->score;
}

static void make_unigram(struct tokenizer *t, const struct sp_model *m)
{
    struct unigram_model u = {.tokens = heap((m->count + 1) * sizeof *u.tokens),
                              .min_score = FLT_MAX,
                              .single_precision = true};
    for (size_t i = 0; i < m->count; i++)
        if (m->pieces[i].type == NORMAL && m->pieces[i].score < u.min_score)
            u.min_score = m->pieces[i].score;
    float max_score = highest_score(m);
    for (size_t i = 0; i < m->count; i++) {
        const struct sp_piece *p = &m->pieces[i];
        const struct token_bytes *token = vocabulary_token(&t->vocabulary, p->id);
        if (!token || (p->type != NORMAL && p->type != USER_DEFINED)) continue;
        u.tokens[u.count++] =
            (struct unigram_token){.text = (const char *)t->vocabulary.bytes + token->at,
                                   .len = token->len,
                                   .id = p->id,
                                   .score = unigram_score(m, p, max_score)};
    }
    t->unigram = unigram_make(&u);
    free(u.tokens);
}

static int32_t control_piece_id(const struct tokenizer *t, struct byte_view name)
{
    char *text = heap_string(name.at, name.len);
    int32_t id = special_tokens_find(&t->special_tokens, text);
    free(text);
    return id == t->char_bpe->unknown_id ? -1 : id;
}

static enum status build_tokenizer(struct tokenizer *t, struct sp_model *m)
{
    struct char_bpe *c = t->char_bpe = char_bpe_make();
    TRY(check_kind(m));
    c->escapes_spaces = m->escapes_spaces;
    c->removes_extra_spaces = m->removes_extra_spaces;
    c->byte_fallback = m->byte_fallback;
    c->prefix = m->dummy_prefix ? PREFIX_ALWAYS : PREFIX_NEVER;
    c->replaces_invalid = c->fuses_unknown = true;
    c->strip = c->removes_extra_spaces ? STRIP_UNTIL_TEXT
               : m->dummy_prefix       ? STRIP_FIRST_TEXT_PIECE
                                       : STRIP_NOTHING;
    c->first_internal_id = t->vocab_size = (int32_t)m->count;
    c->maps_characters = m->removes_extra_spaces || m->charsmap.len;
    if (m->charsmap.len)
        TRY_PREFIX(charsmap_init(&c->charsmap, m->charsmap.at, m->charsmap.len), "%s", t->path);
    c->maps_invalid_utf8 = m->model_type == UNIGRAM;
    TRY(add_pieces(t, m));
    if (m->model_type == UNIGRAM) {
        vocabulary_trim(&t->vocabulary);
        make_unigram(t, m);
    } else {
        TRY(add_internal_characters(t, m));
        add_merges(&t->vocabulary, m);
    }
    char_bpe_finish(c, &t->vocabulary);
    t->bos = control_piece_id(t, m->bos);
    t->eos = control_piece_id(t, m->eos);
    return STATUS_OK;
}

static enum status parse_model(const char *path, const char *bytes, size_t len, struct sp_model *m)
{
    const unsigned char *at = (const unsigned char *)bytes;
    *m = (struct sp_model){
        .path = path,
        .model_type = 1,
        .bos = {"<s>", 3},
        .eos = {"</s>", 4},
        .unknown_surface = {" \xE2\x81\x87 ", 5},
        .dummy_prefix = 1,
        .removes_extra_spaces = 1,
        .escapes_spaces = 1,
    };
    return read_message(m, (struct reader){at, at + len, path});
}

enum status sentencepiece_read(struct tokenizer *t, const char *bytes, size_t len)
{
    struct sp_model m;
    enum status st = parse_model(t->path, bytes, len, &m);
    if (!st) st = build_tokenizer(t, &m);
    free(m.pieces);
    if (st == STATUS_DATA) return status_prefix(st, "truncated or corrupt SentencePiece model");
    t->format = t->unigram ? FORMAT_SENTENCEPIECE_UNIGRAM : FORMAT_SENTENCEPIECE;
    t->file_name = "tokenizer.model";
    return st;
}

enum status sentencepiece_export(const struct tokenizer *t, struct token_table *e)
{
    struct sp_model m;
    enum status st = parse_model(t->path, t->file.data, t->file.len, &m);
    e->tokens = heap((m.count + 1) * sizeof *e->tokens);
    e->num_tokens = (int32_t)m.count;
    e->adds_space = m.dummy_prefix;
    e->removes_extra_spaces = m.removes_extra_spaces;
    e->is_unigram = m.model_type == UNIGRAM;
    e->byte_fallback = m.byte_fallback;
    e->charsmap = m.charsmap.len ? (const unsigned char *)m.charsmap.at : NULL;
    e->charsmap_bytes = m.charsmap.len;
    e->unknown = t->char_bpe->unknown_id;
    float max_score = highest_score(&m);
    for (size_t i = 0; i < m.count; i++) {
        const struct sp_piece *p = &m.pieces[i];
        e->tokens[i] = (struct exported_token){{e->texts.len, (uint32_t)p->len},
                                               (enum token_kind)p->type,
                                               unigram_score(&m, p, max_score)};
        text_add(&e->texts, p->text, p->len);
    }
    free(m.pieces);
    return st;
}
