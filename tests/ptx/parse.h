/* parse.h -- what module.c and parse.c share: the words of PTX, and its variables. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ptx/machine.h"

struct word {
    const char *at;
    size_t length;
};

/* Returns what follows the next word, which is empty at the end of the text. */
const char *word_next(const char *s, struct word *w);
bool word_is(struct word w, const char *text);
/* Of a name, mnemonic or number, unlike punctuation. */
bool word_has_letter(struct word w);
const char *skip_space(const char *s);

enum kind { GLOBAL_SYMBOL, SHARED_SYMBOL, DYNAMIC_SYMBOL, LOCAL_SYMBOL, PARAMETER_SYMBOL };

struct symbol {
    const char *name;
    size_t length, bytes, element, align;
    enum kind kind;
    int64_t value; /* address or offset; -1: not yet placed */
    struct symbol *next;
};

/* Behind ".shared", as in ".shared .align 4 .b8 name[256]".  Returns what follows. */
const char *symbol_parse(const char *s, struct symbol *out);
struct symbol *symbol_add(struct symbol **list, struct symbol s);
/* NULL: none. */
struct symbol *symbol_find(struct symbol *list, struct word name);

/* Of "f32", without dot: bytes; 0 for pred, -1 for what is not a type. */
int type_bytes(const char *s, size_t length);
