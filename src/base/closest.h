/* closest.h -- the known name that a misspelled one most likely means, for "did you mean ...?".
 *
 *     struct closest c = closest_to(word);
 *     for each known name: closest_offer(&c, name);
 *     c.name is the suggestion, or NULL.
 *
 * Names are compared by Damerau-Levenshtein distance (optimal string alignment), regardless of
 * case and of - versus _.  A suggestion is at most a third of the longer name's length away, or one
 * of the two abbreviates the other: "temp" and "temperature", "bf16" and "bfloat16". */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

struct closest {
    const char *word, *name; /* name: the best so far, borrowed from the caller; NULL: none */
    size_t cost; /* of that name: twice the distance, 0 is equal; of an abbreviation the length of
                  * the longer one, plus 1 */
};

struct closest closest_to(const char *word);
void closest_offer(struct closest *c, const char *name);
/* The same for the words of a list "a|b|c".  Returns the length of the closest word, which begins
 * at c->name; 0: no word is close. */
size_t closest_offer_list(struct closest *c, const char *list);

/* A word of another program, and what it is called here. */
struct closest_synonym {
    const char *word, *name;
};
/* The name of a synonym, or NULL. */
const char *closest_find_synonym(const struct closest_synonym *synonyms, size_t count,
                                 const char *word);
