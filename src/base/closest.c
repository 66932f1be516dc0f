// SPDX-License-Identifier: Apache-2.0
#include "base/closest.h"

#include "base/text.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORD = 127 };

static char folded(char c) { return c == '-' ? '_' : (char)tolower((unsigned char)c); }

static bool is_same(const char *a, const char *b)
{
    for (; *a && folded(*a) == folded(*b); a++) b++;
    return !*a && !*b;
}

static void fold(char *out, const char *word, size_t len)
{
    for (size_t i = 0; i < len; i++) out[i] = folded(word[i]);
}

/* Optimal string alignment: insertions, deletions, substitutions, and swaps of neighbors.  Returns
 * any larger number for a distance above `most`. */
static size_t alignment(const char *a, const char *b, size_t la, size_t lb, size_t most)
{
    char fa[MAX_WORD], fb[MAX_WORD];
    size_t rows[3][MAX_WORD + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    size_t least = 0; /* of the last row */
    if ((la > lb ? la - lb : lb - la) > most) return SIZE_MAX;
    fold(fa, a, la), fold(fb, b, lb);
    for (size_t j = 0; j <= lb; j++) last[j] = before[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t least_before = least;
        least = row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = last[j - 1] + (fa[i - 1] != fb[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && fa[i - 1] == fb[j - 2] && fa[i - 2] == fb[j - 1];
            if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            row[j] = best;
            if (best < least) least = best;
        }
        if (least > most && least_before > most) return SIZE_MAX;
        size_t *oldest = before;
        before = last, last = row, row = oldest;
    }
    return last[lb];
}

/* Whether `part` is `whole` without some of its characters, but with its first and last ones, or
 * without its end. */
static bool abbreviates(const char *part, const char *whole, size_t len, size_t whole_len)
{
    size_t found = 0, at = 0;
    if (len < 3 || len >= whole_len) return false;
    while (at < len && folded(part[at]) == folded(whole[at])) at++;
    if (at == len) return true;
    for (at = 0; at < whole_len && found < len; at++)
        found += folded(part[found]) == folded(whole[at]);
    return found == len && len >= 4 && 2 * len >= whole_len &&
           folded(part[0]) == folded(whole[0]) &&
           folded(part[len - 1]) == folded(whole[whole_len - 1]);
}

/* Twice the distance, or SIZE_MAX if the names have too little in common. */
static size_t cost(const char *a, const char *b, size_t la, size_t lb)
{
    size_t longer = la > lb ? la : lb;
    if (!la || !lb || longer > MAX_WORD) return SIZE_MAX;
    size_t distance = alignment(a, b, la, lb, longer / 3);
    if (distance <= longer / 3) return 2 * distance;
    if (abbreviates(a, b, la, lb) || abbreviates(b, a, lb, la)) return longer + 1;
    return SIZE_MAX;
}

struct closest closest_to(const char *word) { return (struct closest){word, NULL, SIZE_MAX}; }

static bool offer(struct closest *c, const char *name, size_t len)
{
    size_t own = cost(c->word, name, strlen(c->word), len);
    if (own >= c->cost) return false;
    c->name = name, c->cost = own;
    return true;
}

void closest_offer(struct closest *c, const char *name) { offer(c, name, strlen(name)); }

size_t closest_offer_list(struct closest *c, const char *list)
{
    size_t found = 0;
    for (const char *at = list;; at++) {
        size_t len = strcspn(at, "|");
        if (offer(c, at, len)) found = len;
        at += len;
        if (*at != '|') return found;
    }
}

const char *closest_find_synonym(const struct closest_synonym *synonyms, size_t count,
                                 const char *word)
{
    for (size_t i = 0; i < count; i++)
        if (is_same(synonyms[i].word, word)) return synonyms[i].name;
    return NULL;
}
