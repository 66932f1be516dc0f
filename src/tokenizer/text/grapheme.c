// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/grapheme.h"

#include "tokenizer/text/unicode.h"

#include <stdbool.h>

/* Grapheme_Cluster_Break; Extended_Pictographic and Indic_Conjunct_Break where they matter. */
enum grapheme_kind {
    OTHER,
    CR,
    LF,
    CONTROL,
    EXTEND,
    ZWJ,
    REGIONAL_INDICATOR,
    PREPEND,
    SPACING_MARK,
    HANGUL_L,
    HANGUL_V,
    HANGUL_T,
    HANGUL_LV,
    HANGUL_LVT,
    PICTOGRAPHIC,
    CONSONANT,
    LINKER,          /* an Extend that joins consonants to a conjunct */
    CONJUNCT_EXTEND, /* an Extend inside a conjunct */
};
struct grapheme_run {
    uint32_t first, last;
    uint8_t kind;
};
#include "tokenizer/text/unicode_graphemes.inc"

static enum grapheme_kind kind_of(const unsigned char *text, size_t len, int *size)
{
    uint32_t code = unicode_decode(text, len, size);
    size_t low = 0, high = sizeof grapheme_runs / sizeof *grapheme_runs;
    if (*size == 1 && text[0] >= 0x80) return CONTROL;
    if (code >= 0xAC00 && code <= 0xD7A3) return (code - 0xAC00) % 28 ? HANGUL_LVT : HANGUL_LV;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct grapheme_run *r = &grapheme_runs[middle];
        if (code >= r->first && code <= r->last) return (enum grapheme_kind)r->kind;
        if (code < r->first)
            high = middle;
        else
            low = middle + 1;
    }
    return OTHER;
}

/* What the rules need to know of a cluster's characters so far. */
struct cluster_state {
    enum grapheme_kind last;
    bool is_pictograph; /* Extended_Pictographic Extend* */
    bool joins_picture; /* the same, and ZWJ */
    bool is_conjunct;   /* Consonant (Extend | Linker)* */
    bool has_linker;    /* the same with a Linker */
    bool odd_indicators;
};

static bool is_extend(enum grapheme_kind k)
{
    return k == EXTEND || k == LINKER || k == CONJUNCT_EXTEND;
}

static void add_kind(struct cluster_state *s, enum grapheme_kind k)
{
    s->joins_picture = k == ZWJ && s->is_pictograph;
    s->is_pictograph = k == PICTOGRAPHIC || (s->is_pictograph && is_extend(k));
    bool in_conjunct = s->is_conjunct && (k == LINKER || k == CONJUNCT_EXTEND || k == ZWJ);
    s->has_linker = in_conjunct && (s->has_linker || k == LINKER);
    s->is_conjunct = k == CONSONANT || in_conjunct;
    s->odd_indicators = k == REGIONAL_INDICATOR && !s->odd_indicators;
    s->last = k;
}

/* Rules GB3 to GB13. */
static bool joins(const struct cluster_state *s, enum grapheme_kind k)
{
    enum grapheme_kind last = s->last;
    if (last == CR) return k == LF;
    if (last == LF || last == CONTROL || k == CR || k == LF || k == CONTROL) return false;
    if (last == HANGUL_L && (k == HANGUL_L || k == HANGUL_V || k == HANGUL_LV || k == HANGUL_LVT))
        return true;
    if ((last == HANGUL_LV || last == HANGUL_V) && (k == HANGUL_V || k == HANGUL_T)) return true;
    if ((last == HANGUL_LVT || last == HANGUL_T) && k == HANGUL_T) return true;
    if (is_extend(k) || k == ZWJ || k == SPACING_MARK || last == PREPEND) return true;
    return (k == CONSONANT && s->has_linker) || (k == PICTOGRAPHIC && s->joins_picture) ||
           (k == REGIONAL_INDICATOR && s->odd_indicators);
}

size_t grapheme_next(const unsigned char *text, size_t len)
{
    struct cluster_state s = {0};
    int size;
    if (text[0] < 0x80 && text[0] != '\r' && (len == 1 || text[1] < 0x80)) return 1;
    add_kind(&s, kind_of(text, len, &size));
    for (size_t at = (size_t)size; at < len; at += (size_t)size) {
        enum grapheme_kind k = kind_of(text + at, len - at, &size);
        if (!joins(&s, k)) return at;
        add_kind(&s, k);
    }
    return len;
}
