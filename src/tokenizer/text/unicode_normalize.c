// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/unicode_normalize.h"

#include "tokenizer/text/unicode.h"

#include <stdlib.h>
#include <string.h>

struct unicode_whole {
    uint32_t code;
    uint16_t at, count;
};
struct unicode_pair {
    uint32_t first, second, composite;
};
struct unicode_combining {
    uint32_t first, last;
    uint8_t combining_class;
};
#include "tokenizer/text/unicode_forms.inc"

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* Hangul syllables are composed arithmetically from 19 leading consonants, 21 vowels and 27
 * trailing consonants. */
enum {
    SYLLABLES = 0xAC00,
    LEADS = 0x1100,
    VOWELS = 0x1161,
    TRAILS = 0x11A7, /* one below the first trailing consonant */
    NUM_LEADS = 19,
    NUM_VOWELS = 21,
    NUM_TRAILS = 28,
    NUM_SYLLABLES = NUM_LEADS * NUM_VOWELS * NUM_TRAILS,
};

struct combining_char {
    uint32_t code;
    uint8_t combining_class; /* canonical; 0: a starter */
};

/* Decomposed characters that may be reordered or composed with one another. */
struct cluster {
    bool compatible;                     /* NFKC, NFKD */
    struct combining_char *all, *sorted; /* owned */
    size_t count, capacity;
};

static uint8_t combining_class_of(uint32_t code)
{
    size_t low = 0, high = COUNT(unicode_combinings);
    if (!unicode_has_mark(code, UNICODE_NFD)) return 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct unicode_combining *c = &unicode_combinings[middle];
        if (code >= c->first && code <= c->last) return c->combining_class;
        if (code < c->first)
            high = middle;
        else
            low = middle + 1;
    }
    return 0;
}

static void append_char(struct cluster *c, uint32_t code)
{
    if (c->count == c->capacity) {
        c->capacity = 2 * c->capacity + 16;
        c->all = heap_grow(c->all, c->capacity, sizeof *c->all);
    }
    c->all[c->count++] = (struct combining_char){code, combining_class_of(code)};
}

static const struct unicode_whole *find_whole(const struct unicode_whole *table, size_t count,
                                              uint32_t code)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].code == code) return &table[middle];
        if (code < table[middle].code)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static const struct unicode_whole *find_decomposition(const struct cluster *c, uint32_t code)
{
    if (c->compatible && unicode_has_mark(code, UNICODE_COMPATIBLE))
        return find_whole(unicode_compatibles, COUNT(unicode_compatibles), code);
    return unicode_has_mark(code, UNICODE_NFD)
               ? find_whole(unicode_wholes, COUNT(unicode_wholes), code)
               : NULL;
}

static void append_decomposed(struct cluster *c, uint32_t code)
{
    const struct unicode_whole *w = find_decomposition(c, code);
    if (code >= SYLLABLES && code < SYLLABLES + NUM_SYLLABLES) {
        uint32_t index = code - SYLLABLES, trail = index % NUM_TRAILS;
        append_char(c, LEADS + index / (NUM_VOWELS * NUM_TRAILS));
        append_char(c, VOWELS + index / NUM_TRAILS % NUM_VOWELS);
        if (trail) append_char(c, TRAILS + trail);
    } else if (w) {
        for (size_t i = 0; i < w->count; i++) append_char(c, unicode_decomposed[w->at + i]);
    } else {
        append_char(c, code);
    }
}

/* Counting sort: stable, and linear for any number of combining marks. */
static void sort_by_class(struct cluster *c, size_t begin, size_t end)
{
    size_t offsets[256] = {0}, offset = begin;
    c->sorted = heap_grow(c->sorted, c->capacity, sizeof *c->sorted);
    for (size_t i = begin; i < end; i++) offsets[c->all[i].combining_class]++;
    for (size_t k = 0; k < 256; k++) {
        size_t count = offsets[k];
        offsets[k] = offset;
        offset += count;
    }
    for (size_t i = begin; i < end; i++)
        c->sorted[offsets[c->all[i].combining_class]++] = c->all[i];
    memcpy(c->all + begin, c->sorted + begin, (end - begin) * sizeof *c->all);
}

static void order_canonically(struct cluster *c)
{
    for (size_t begin = 0, end; begin < c->count; begin = end) {
        bool sorted = true;
        for (end = begin + 1;
             end < c->count && c->all[begin].combining_class && c->all[end].combining_class; end++)
            sorted &= c->all[end - 1].combining_class <= c->all[end].combining_class;
        if (!sorted) sort_by_class(c, begin, end);
    }
}

/* The primary composite of two characters, or 0. */
static uint32_t compose_pair(uint32_t first, uint32_t second)
{
    uint32_t lead = first - LEADS, vowel = second - VOWELS;
    uint32_t index = first - SYLLABLES, trail = second - TRAILS;
    if (lead < NUM_LEADS && vowel < NUM_VOWELS)
        return SYLLABLES + (lead * NUM_VOWELS + vowel) * NUM_TRAILS;
    if (index < NUM_SYLLABLES && index % NUM_TRAILS == 0 && trail > 0 && trail < NUM_TRAILS)
        return first + trail;
    size_t low = 0, high = COUNT(unicode_pairs);
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct unicode_pair *p = &unicode_pairs[middle];
        if (p->first == first && p->second == second) return p->composite;
        if (first < p->first || (first == p->first && second < p->second))
            high = middle;
        else
            low = middle + 1;
    }
    return 0;
}

static void compose(struct cluster *c)
{
    size_t count = 0;
    struct combining_char *starter = NULL;
    int before = -1; /* class of the last character after the starter; -1: none */
    for (size_t i = 0; i < c->count; i++) {
        struct combining_char m = c->all[i];
        uint32_t composite =
            starter && before < m.combining_class ? compose_pair(starter->code, m.code) : 0;
        if (composite) {
            starter->code = composite;
            continue;
        }
        c->all[count] = m;
        if (m.combining_class == 0) starter = &c->all[count];
        before = m.combining_class ? m.combining_class : -1;
        count++;
    }
    c->count = count;
}

static void flush_cluster(struct cluster *c, enum unicode_form form, struct text *out)
{
    order_canonically(c);
    if (form == FORM_NFC || form == FORM_NFKC) compose(c);
    for (size_t i = 0; i < c->count; i++) text_add_utf8(out, c->all[i].code);
    c->count = 0;
}

bool unicode_normalize(enum unicode_form form, const unsigned char *text, size_t len,
                       struct text *out)
{
    static const unsigned marks[] = {[FORM_NFC] = UNICODE_NFC,
                                     [FORM_NFD] = UNICODE_NFD,
                                     [FORM_NFKC] = UNICODE_NFC | UNICODE_COMPATIBLE,
                                     [FORM_NFKD] = UNICODE_NFD | UNICODE_COMPATIBLE};
    unsigned mark = marks[form];
    struct cluster c = {.compatible = mark & UNICODE_COMPATIBLE};
    size_t done = 0, last = 0; /* copied so far; start of the previous character, `at` if invalid */
    int size = 1;
    for (size_t at = 0; mark && at < len;) {
        if (text[at] < 0x80) {
            last = at++;
            continue;
        }
        uint32_t code = unicode_decode(text + at, len - at, &size);
        if (size == 1 || !unicode_has_mark(code, mark)) {
            last = size == 1 ? at + 1 : at;
            at += (size_t)size;
            continue;
        }
        text_add(out, text + done, last - done);
        for (done = last; done < len; done += (size_t)size) {
            code = unicode_decode(text + done, len - done, &size);
            bool invalid = size == 1 && text[done] >= 0x80;
            if (invalid || (done > last && !unicode_has_mark(code, mark))) break;
            append_decomposed(&c, code);
        }
        flush_cluster(&c, form, out);
        last = at = done;
    }
    if (done) text_add(out, text + done, len - done);
    free(c.all), free(c.sorted);
    return done > 0;
}
