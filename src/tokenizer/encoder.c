// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/encoder.h"

#include "tokenizer/char_bpe.h"
#include "tokenizer/merge.h"
#include "tokenizer/text/unicode.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/unigram.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BITS = 16, CACHED_BYTES = 15, CACHED_IDS = 4, CACHE_LINE = 64 };
enum { LONG_BYTES = 46, LONG_IDS = 20, LONG_SHIFT = 2 };

/* The IDs of a short piece.  An entry is 32 bytes: half a cache line. */
struct cache_entry {
    uint64_t key[2]; /* the bytes, and their number in the last byte: all 0 marks an empty entry */
    int32_t ids[CACHED_IDS]; /* padded with -1 */
};

/* The cache of short pieces is two-way set associative: a set has the last two pieces that were
 * looked up in it, the last one first. */
struct cache_set {
    _Alignas(CACHE_LINE) struct cache_entry ways[2];
};

/* The same for pieces with more bytes or IDs, such as words of most scripts but Latin.  This cache
 * is direct-mapped.  It has an entry of two cache lines for every 2^LONG_SHIFT short ones. */
struct long_entry {
    unsigned char bytes[LONG_BYTES], len, num_ids; /* len 0: empty */
    int32_t ids[LONG_IDS];
};

struct encoder {
    const struct tokenizer *tokenizer;
    struct merger merger;
    struct unigram_path path;
    struct pre_tokenizer_scratch scratch;
    struct normalizer_scratch normalizer;
    void *caches;           /* the memory of both */
    struct cache_set *sets; /* 2^set_bits */
    struct long_entry *long_entries;
    size_t long_mask; /* their number - 1 */
    int set_bits;
    struct text formed;            /* the text in its normalization form */
    struct text normal;            /* the normalized text */
    struct text escaped;           /* a piece as Metaspace rewrites it */
    const unsigned char *document; /* where the pieces of a document's first part start */
};

enum status encoder_make(struct encoder **out, const struct tokenizer *t)
{
    return encoder_make_sized(out, t, DEFAULT_BITS);
}

/* Otherwise each byte is a token, and nothing is cached. */
static bool has_pieces(const struct tokenizer *t) { return t->char_bpe || encoder_uses_cuts(t); }

enum status encoder_make_sized(struct encoder **out, const struct tokenizer *t, int entry_bits)
{
    struct encoder *e = *out = heap(sizeof *e);
    if (!has_pieces(t)) entry_bits = 1;
    e->tokenizer = t;
    e->set_bits = entry_bits - 1;
    e->long_mask = entry_bits > LONG_SHIFT ? ((size_t)1 << (entry_bits - LONG_SHIFT)) - 1 : 0;
    size_t set_bytes = sizeof *e->sets << e->set_bits;
    e->caches = heap(CACHE_LINE + set_bytes + (e->long_mask + 1) * sizeof *e->long_entries);
    e->sets = (void *)(((uintptr_t)e->caches + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    e->long_entries = (void *)((char *)e->sets + set_bytes);
    pre_tokenizer_scratch_init(&e->scratch, &t->pre_tokenizer);
    normalizer_scratch_init(&e->normalizer, &t->normalizer);
    return STATUS_OK;
}

size_t encoder_memory_bytes(const struct encoder *e)
{
    enum { SCRATCH = 1 << 20 }; /* of pieces and their merging, about */
    const struct tokenizer *t = e->tokenizer;
    size_t sets = sizeof *e->sets << e->set_bits;
    return has_pieces(t) ? sets + (e->long_mask + 1) * sizeof *e->long_entries + SCRATCH : 0;
}

void encoder_free(struct encoder *e)
{
    if (!e) return;
    merger_release(&e->merger);
    unigram_path_release(&e->path);
    pre_tokenizer_scratch_release(&e->scratch);
    normalizer_scratch_release(&e->normalizer);
    text_release(&e->formed), text_release(&e->normal), text_release(&e->escaped);
    free(e->caches);
    free(e);
}

/* SentencePiece encodes unknown characters one by one.  Hugging Face's library joins adjacent ones;
 * their text may then be a token. */
static void encode_unigram(struct encoder *e, const unsigned char *piece, size_t len,
                           struct token_list *out)
{
    const struct tokenizer *t = e->tokenizer;
    const struct unigram_path *path = &e->path;
    bool joins = t->format == FORMAT_HF_UNIGRAM;
    unigram_encode(t->unigram, &e->path, piece, len);
    token_list_reserve(out, path->count);
    for (size_t i = 0; i < path->count; i++) {
        const struct unigram_piece *p = &path->pieces[i];
        int32_t id = p->id;
        size_t size = p->len;
        bool unknown = id < 0 || (joins && id == t->char_bpe->unknown_id);
        if (!unknown) {
            out->ids[out->count++] = id;
            continue;
        }
        while (joins && i + 1 < path->count &&
               (p[1].id < 0 || p[1].id == t->char_bpe->unknown_id)) {
            size += (++p)->len;
            i++;
        }
        const unsigned char *text = piece + p->begin + p->len - size;
        token_list_reserve(out, CHAR_BPE_IDS_PER_BYTE * size + path->count - i);
        id = joins ? vocabulary_find(&t->vocabulary, text, size) : -1;
        if (id >= 0)
            out->ids[out->count++] = id;
        else
            out->count += char_bpe_encode_unknown(t->char_bpe, text, size, out->ids + out->count);
    }
}

static enum status encode_uncached(struct encoder *e, const unsigned char *piece, size_t len,
                                   struct token_list *out)
{
    enum { MAX_PIECE_BYTES = 64 << 20 }; /* merging needs 60 bytes of memory per byte */
    const struct tokenizer *t = e->tokenizer;
    int32_t whole_id = t->ignore_merges ? vocabulary_find(&t->vocabulary, piece, len) : -1;
    if (whole_id >= 0) {
        token_list_reserve(out, 1);
        out->ids[out->count++] = whole_id;
        return STATUS_OK;
    }
    if (len > MAX_PIECE_BYTES)
        FAIL(RECORD, "a piece of text has %zu bytes; at most %d are supported", len,
             MAX_PIECE_BYTES);
    if (t->unigram) {
        encode_unigram(e, piece, len, out);
    } else if (t->char_bpe) {
        size_t begin = out->count;
        int32_t *ids = merger_reserve(&e->merger, CHAR_BPE_IDS_PER_BYTE * len + 1);
        size_t count = char_bpe_initial_ids(t->char_bpe, &t->vocabulary, piece, len, ids);
        merger_merge(&e->merger, &t->vocabulary, ids, count, out);
        char_bpe_expand_internal(t->char_bpe, &t->vocabulary, out, begin);
    } else {
        merger_encode(&e->merger, &t->vocabulary, piece, len, out);
    }
    return STATUS_OK;
}

/* A piece, and where it is cached. */
struct cached_piece {
    const unsigned char *bytes;
    size_t len;
    uint64_t key[2];
    struct cache_set *set;         /* NULL: too long for one */
    struct long_entry *long_entry; /* NULL: short, or too long to cache */
};

/* Sets the key of a short piece, whose text has `left` bytes from its start.  A copy of `len` bytes
 * stalls: its stores are narrower than the loads that follow.  So it copies 16 and masks them. */
static void set_key(struct cached_piece *p, size_t left)
{
    size_t len = p->len;
    uint64_t words[2] = {0}, mask = ((uint64_t)1 << 8 * (len & 7)) - 1;
    memcpy(words, p->bytes, left < sizeof words ? len : sizeof words);
    p->key[0] = len < 8 ? words[0] & mask : words[0];
    p->key[1] = (len < 8 ? 0 : words[1] & mask) | (uint64_t)len << 56;
}

static struct long_entry *find_long_entry(const struct encoder *e, const struct cached_piece *p)
{
    return &e->long_entries[vocabulary_hash(p->bytes, p->len) & e->long_mask];
}

static void find_entry(const struct encoder *e, struct cached_piece *p, size_t left)
{
    p->set = NULL;
    p->long_entry = NULL;
    if (p->len > LONG_BYTES) return;
    if (p->len > CACHED_BYTES) {
        p->long_entry = find_long_entry(e, p);
        __builtin_prefetch(p->long_entry);
        __builtin_prefetch(p->long_entry->ids + LONG_IDS - 1);
        return;
    }
    set_key(p, left);
    uint64_t hash = (p->key[0] ^ p->key[1] * 0x9E3779B97F4A7C15u) * 0xFF51AFD7ED558CCDu;
    p->set = &e->sets[(hash ^ hash << 27) >> (63 - e->set_bits) >> 1]; /* set_bits may be 0 */
    __builtin_prefetch(p->set);
}

/* A piece with an entry for long pieces. */
static enum status encode_long_piece(struct encoder *e, const struct cached_piece *p,
                                     struct token_list *out)
{
    struct long_entry *r = p->long_entry;
    if (r->len == p->len && !memcmp(r->bytes, p->bytes, p->len)) {
        token_list_reserve(out, LONG_IDS);
        memcpy(out->ids + out->count, r->ids, sizeof r->ids);
        out->count += r->num_ids;
        return STATUS_OK;
    }
    size_t first = out->count;
    TRY(encode_uncached(e, p->bytes, p->len, out));
    size_t num_ids = out->count - first;
    if (num_ids > LONG_IDS) return STATUS_OK;
    memcpy(r->bytes, p->bytes, p->len);
    r->len = (unsigned char)p->len;
    r->num_ids = (unsigned char)num_ids;
    if (num_ids) /* out->ids may be NULL if 0 */
        memcpy(r->ids, out->ids + first, num_ids * sizeof *r->ids);
    return STATUS_OK;
}

/* Moves the piece with this key to the front of its set; NULL if the set does not have it. */
static struct cache_entry *find_in_set(struct cache_set *set, const uint64_t key[2])
{
    struct cache_entry *way = set->ways, second = way[1];
    if (way[0].key[0] == key[0] && way[0].key[1] == key[1]) return way;
    if (second.key[0] != key[0] || second.key[1] != key[1]) return NULL;
    way[1] = way[0];
    way[0] = second;
    return way;
}

static enum status encode_piece(struct encoder *e, struct cached_piece *p, struct token_list *out)
{
    if (p->long_entry) return encode_long_piece(e, p, out);
    if (!p->set) return encode_uncached(e, p->bytes, p->len, out);
    struct cache_entry *r = find_in_set(p->set, p->key);
    if (r) {
        token_list_reserve(out, CACHED_IDS);
        memcpy(out->ids + out->count, r->ids, sizeof r->ids);
        for (int i = 0; i < CACHED_IDS; i++) out->count += r->ids[i] >= 0;
        return STATUS_OK;
    }
    size_t first = out->count;
    p->long_entry = find_long_entry(e, p);
    TRY(encode_long_piece(e, p, out));
    size_t num_ids = out->count - first;
    if (num_ids > CACHED_IDS) return STATUS_OK;
    r = p->set->ways;
    r[1] = r[0];
    r[0] = (struct cache_entry){{p->key[0], p->key[1]}, {-1, -1, -1, -1}};
    if (num_ids) memcpy(r->ids, out->ids + first, num_ids * sizeof *r->ids);
    return STATUS_OK;
}

/* Pieces are encoded in batches, so that the prefetch of their cache entries overlaps with
 * splitting. */
enum { BATCH_PIECES = 16 };

struct piece_batch {
    struct encoder *encoder;
    struct token_list *out;
    size_t count;
    struct cached_piece all[BATCH_PIECES];
};

static enum status encode_batch(struct piece_batch *p)
{
    for (size_t i = 0; i < p->count; i++) TRY(encode_piece(p->encoder, &p->all[i], p->out));
    p->count = 0;
    return STATUS_OK;
}

static enum status add_piece(void *context, const unsigned char *bytes, size_t len)
{
    struct piece_batch *p = context;
    if (!len || p->count == BATCH_PIECES) TRY(encode_batch(p));
    if (!len) return STATUS_OK;
    p->all[p->count] = (struct cached_piece){.bytes = bytes, .len = len};
    find_entry(p->encoder, &p->all[p->count++], len);
    return STATUS_OK;
}

/* Rewrites a piece as Metaspace does, and adds its parts. */
static enum status add_metaspace_piece(void *context, const unsigned char *bytes, size_t len)
{
    static const char escaped_space[] = "\xE2\x96\x81";
    struct piece_batch *p = context;
    struct encoder *e = p->encoder;
    const struct metaspace *m = &e->tokenizer->metaspace;
    TRY(encode_batch(p)); /* its pieces are in e->escaped */
    if (!len) return STATUS_OK;
    bool has = bytes[0] == ' ' || (len >= 3 && !memcmp(bytes, escaped_space, 3));
    text_clear(&e->escaped);
    if (m->prepends && !has && (!m->only_first || bytes == e->document))
        text_adds(&e->escaped, escaped_space);
    for (size_t at = 0, end; at < len; at = end) {
        const unsigned char *space = memchr(bytes + at, ' ', len - at);
        end = space ? (size_t)(space - bytes) + 1 : len;
        text_add(&e->escaped, bytes + at, end - at - !!space);
        if (space) text_adds(&e->escaped, escaped_space);
    }
    const char *text = e->escaped.data;
    for (size_t at = 0, end; at < e->escaped.len; at = end) {
        size_t after = at + 1, left = e->escaped.len - after;
        const char *next = m->splits ? memmem(text + after, left, escaped_space, 3) : NULL;
        end = next ? (size_t)(next - text) : e->escaped.len;
        TRY(add_piece(p, (const unsigned char *)text + at, end - at));
    }
    return STATUS_OK;
}

static enum status encode_by_rules(struct encoder *e, const unsigned char *text, size_t len,
                                   struct token_list *out)
{
    struct piece_batch pieces = {.encoder = e, .out = out};
    piece_callback *add = e->tokenizer->metaspace.is_used ? add_metaspace_piece : add_piece;
    TRY(pre_tokenizer_run(&e->scratch, text, len, add, &pieces));
    return encode_batch(&pieces);
}

static enum status encode_part(struct encoder *e, const unsigned char *text, size_t len,
                               struct token_list *out)
{
    const struct tokenizer *t = e->tokenizer;
    struct cached_piece pieces[BATCH_PIECES];
    if (t->pre_tokenizer.count || t->metaspace.is_used) return encode_by_rules(e, text, len, out);
    for (size_t at = 0, count; at < len;) {
        for (count = 0; count < BATCH_PIECES && at < len; count++) {
            size_t n = len;
            if (t->split)
                n = t->split(text + at, len - at);
            else if (t->char_bpe && !t->unigram)
                n = char_bpe_segment(t->char_bpe, text + at, len - at);
            pieces[count] = (struct cached_piece){.bytes = text + at, .len = n};
            find_entry(e, &pieces[count], len - at);
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
    int32_t *ids = out->ids + out->count;
    for (size_t i = 0; i < len; i++) ids[i] = t->vocabulary.byte_ids[text[i]];
    out->count += t->vocabulary.lacks_bytes ? token_list_drop_missing(ids, len) : len;
}

/* Python's str.isspace: white space, and the four ASCII separators. */
static bool is_space(const unsigned char *text, size_t len, int *size)
{
    return unicode_next(text, len, size) == UNICODE_SPACE || (text[0] >= 0x1C && text[0] <= 0x1F);
}

/* As Meta's tokenizer.py does, cuts text every 400,000 characters, and within these parts wherever
 * more than 25,000 consecutive characters are all spaces or all non-spaces. */
static enum status encode_with_meta_cuts(struct encoder *e, const unsigned char *text, size_t len,
                                         struct token_list *out)
{
    enum { MAX_CHARACTERS = 400000, MAX_RUN = 25000 };
    size_t begin = 0, characters = 0, run = 0;
    bool run_is_space = false;
    for (size_t at = 0; at < len; characters++) {
        int size;
        bool space = is_space(text + at, len - at, &size);
        bool part_ends = characters == MAX_CHARACTERS;
        run = space == run_is_space && !part_ends ? run + 1 : 1;
        run_is_space = space;
        if (part_ends) characters = 0;
        if (part_ends || run > MAX_RUN) {
            TRY(encode_part(e, text + begin, at - begin, out));
            begin = at;
            run = 1;
        }
        at += (size_t)size;
    }
    return encode_part(e, text + begin, len - begin, out);
}

/* A part of a document. */
struct text_part {
    const unsigned char *text;
    size_t len;
    bool is_first; /* it starts the document */
};

/* Encodes user-defined symbols as their tokens, and the text between them by merging. */
static enum status encode_characters(struct encoder *e, struct text_part p, struct token_list *out)
{
    const struct char_bpe *c = e->tokenizer->char_bpe;
    size_t begin = out->count, done = 0, size;
    text_clear(&e->normal);
    text_reserve(&e->normal, 1); /* not NULL if the text normalizes to nothing */
    char_bpe_normalize(c, p.text, p.len, p.is_first, &e->normal);
    const unsigned char *text = (const unsigned char *)e->normal.data;
    size_t len = e->normal.len;
    e->document = p.is_first ? text : NULL;
    for (size_t at = 0; at < len && !matcher_is_empty(&c->user_defined);) {
        int32_t id = -1;
        if (matcher_may_start(&c->user_defined, text[at]))
            id = matcher_find(&c->user_defined, text + at, len - at, &size);
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
    bool one_piece = !e->tokenizer->pre_tokenizer.count && !e->tokenizer->metaspace.is_used;
    if (one_piece) char_bpe_fuse_unknown(c, out, begin);
    return STATUS_OK;
}

bool encoder_uses_cuts(const struct tokenizer *t)
{
    bool merges = t->vocabulary.num_pairs || t->ignore_merges || t->pre_tokenizer.count;
    return merges && !t->char_bpe;
}

static enum status encode_text(struct encoder *e, struct text_part p, struct token_list *out)
{
    const struct tokenizer *t = e->tokenizer;
    if (t->char_bpe) return encode_characters(e, p, out);
    if (encoder_uses_cuts(t))
        return t->meta_cuts ? encode_with_meta_cuts(e, p.text, p.len, out)
                            : encode_part(e, p.text, p.len, out);
    encode_bytes(t, p.text, p.len, out);
    return STATUS_OK;
}

/* Encodes the added tokens of this stage as their tokens, and the text between them by the next
 * stage.  Stage 1 works on the normalized text. */
static enum status encode_stage(struct encoder *e, int stage, struct text_part p,
                                struct token_list *out)
{
    const struct added_tokens *a = &e->tokenizer->added_tokens;
    struct added_match found;
    if (stage == 1 && e->tokenizer->normalizer.count) {
        TRY(normalizer_run(&e->normalizer, p.text, p.len, &p.text, &p.len));
        p.is_first &= !e->normalizer.drops_start; /* what is left does not start the document */
    }
    if (stage == 1 && e->tokenizer->normal_form) {
        text_clear(&e->formed);
        if (unicode_normalize(e->tokenizer->normal_form, p.text, p.len, &e->formed))
            p.text = (const unsigned char *)e->formed.data, p.len = e->formed.len;
    }
    if (stage == ADDED_TOKENS_STAGES || (stage == 1 && !a->matches_text))
        return encode_text(e, p, out);
    struct added_scan scan = {.tokens = a, .stage = stage, .text = p.text, .len = p.len};
    size_t done = 0;
    for (; added_tokens_next(&scan, &found); done = found.end) {
        struct text_part before = {p.text + done, found.begin - done, p.is_first && !done};
        if (before.len) TRY(encode_stage(e, stage + 1, before, out));
        token_list_reserve(out, 1);
        out->ids[out->count++] = found.id;
    }
    if (done == p.len) return STATUS_OK;
    struct text_part rest = {p.text + done, p.len - done, p.is_first && !done};
    return encode_stage(e, stage + 1, rest, out);
}

enum status encoder_encode(struct encoder *e, const char *bytes, size_t len, struct token_list *out)
{
    int stage = e->tokenizer->added_tokens.matches_text ? 0 : 1;
    struct text_part all = {(const unsigned char *)bytes, len, true};
    return encode_stage(e, stage, all, out);
}
