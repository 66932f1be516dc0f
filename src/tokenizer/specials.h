/* specials.h -- tokens that stand for no text: where one begins, ends, is masked. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

struct specials {
    struct special {
        char *text; /* owned */
        int32_t id;
    } * all; /* rising ids once sorted; of one id the first is shown */
    size_t count, room;
};

void specials_release(struct specials *s);
void specials_add(struct specials *s, const char *text, int32_t id); /* copies the text */
/* Those of every tokenizer made here: begin, end and mask of a text, from `first` on. */
enum { SPECIALS_OWN = 3 };
void specials_add_own(struct specials *s, int32_t first);
void specials_sort(struct specials *s); /* before specials_text, if they came in another order */
int32_t specials_id(const struct specials *s, const char *text); /* -1: none */
const char *specials_text(const struct specials *s, int32_t id); /* NULL: none */
