/* module.c -- words, variables, and the kernels of a module. */
// SPDX-License-Identifier: Apache-2.0
#include "ptx/parse.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool word_is(struct word w, const char *text)
{
    return strlen(text) == w.length && !memcmp(w.at, text, w.length);
}

static bool is_letter(char c) { return isalnum((unsigned char)c) || strchr("_$%.", c); }

const char *skip_space(const char *s)
{
    for (;;) {
        while (isspace((unsigned char)*s)) s++;
        if (s[0] == '/' && s[1] == '/')
            s += strcspn(s, "\n");
        else if (s[0] == '/' && s[1] == '*') {
            const char *end = strstr(s + 2, "*/");
            s = end ? end + 2 : s + strlen(s);
        } else
            return s;
    }
}

const char *word_next(const char *s, struct word *w)
{
    s = skip_space(s);
    w->at = s;
    if (is_letter(*s) || (*s == '-' && isdigit((unsigned char)s[1]))) {
        s++;
        while (*s && is_letter(*s)) s++;
    } else if (*s)
        s++;
    w->length = (size_t)(s - w->at);
    return s;
}

bool word_has_letter(struct word w) { return is_letter(*w.at) || *w.at == '-'; }

int type_bytes(const char *s, size_t length)
{
    if (length < 2) return -1;
    const char *digits = s + length;
    while (digits > s && isdigit((unsigned char)digits[-1])) digits--;
    if (digits == s + length) return length == 4 && !memcmp(s, "pred", 4) ? 0 : -1;
    return atoi(digits) / 8;
}

/* ".shared .align 4 .b8 name[256]" from behind the first word; returns what follows. */
const char *symbol_parse(const char *s, struct symbol *out)
{
    struct word w;
    int bytes = 1;
    out->align = 0;
    for (;;) {
        s = word_next(s, &w);
        if (word_is(w, ".align")) {
            s = word_next(s, &w);
            out->align = (size_t)atoi(w.at);
        } else if (*w.at == '.') {
            bytes = type_bytes(w.at + 1, w.length - 1);
        } else
            break;
    }
    out->name = w.at, out->length = w.length, out->bytes = out->element = (size_t)bytes;
    if (!out->align) out->align = (size_t)bytes;
    const char *after = word_next(s, &w);
    if (word_is(w, "[")) {
        s = word_next(after, &w);
        out->bytes = word_is(w, "]") ? 0 : (size_t)bytes * strtoul(w.at, NULL, 10);
        s = strchr(w.at, ']') + 1;
    }
    return s;
}

struct symbol *symbol_add(struct symbol **list, struct symbol s)
{
    struct symbol *new = malloc(sizeof *new);
    if (!new) abort();
    *new = s;
    new->next = *list;
    return *list = new;
}

struct symbol *symbol_find(struct symbol *list, struct word w)
{
    while (list && (list->length != w.length || memcmp(list->name, w.at, w.length)))
        list = list->next;
    return list;
}

/* False: a value that is not a number. */
static bool place_global(struct symbol *s, const char *text)
{
    unsigned char *to = aligned_alloc(256, (s->bytes + 255) / 256 * 256);
    if (!to) abort();
    memset(to, 0, s->bytes);
    text = skip_space(text);
    if (*text == '=') {
        text = skip_space(text + 1);
        if (*text == '{') text++;
        for (size_t n = 0; n < s->bytes; n += s->element) {
            char *end;
            long long value = strtoll(text, &end, 0);
            memcpy(to + n, &value, s->element);
            text = skip_space(end);
            if (*text != ',') break;
            text++;
        }
        if (*text != '}' && *text != ';') return false;
    }
    s->value = (int64_t)(intptr_t)to;
    ptx_memory_add(to, s->bytes);
    return true;
}

static const char *find_brace(const char *s)
{
    int depth = 0;
    for (s = skip_space(s); *s; s = skip_space(s + 1)) {
        if (*s == '{') depth++;
        if (*s == '}' && !--depth) return s;
    }
    return NULL;
}

struct ptx_module *ptx_open(const char *text)
{
    struct ptx_module *m = calloc(1, sizeof *m);
    if (!m) abort();
    int room = 0;
    struct word w = {NULL, 0};
    for (const char *s = word_next(text, &w); *w.at; s = word_next(s, &w)) {
        struct symbol symbol = {.kind = GLOBAL_SYMBOL, .value = -1};
        if (word_is(w, ".entry")) {
            struct ptx_kernel k = {0};
            s = word_next(s, &w);
            k.name = w.at, k.name_length = w.length, k.text = s;
            k.end = find_brace(strchr(s, '{'));
            if (!k.end) {
                fprintf(stderr, "ptx: kernel %.*s has no end\n", (int)w.length, w.at);
                return NULL;
            }
            s = k.end + 1;
            GROW(m->kernels, m->num_kernels, room);
            m->kernels[m->num_kernels++] = k;
        } else if (word_is(w, ".extern")) {
            symbol.kind = DYNAMIC_SYMBOL;
            s = symbol_parse(word_next(s, &w), &symbol);
            symbol_add(&m->globals, symbol);
        } else if (word_is(w, ".shared")) {
            symbol.kind = SHARED_SYMBOL;
            s = symbol_parse(s, &symbol);
            symbol_add(&m->globals, symbol);
        } else if (word_is(w, ".global") || word_is(w, ".const")) {
            s = symbol_parse(s, &symbol);
            if (!place_global(&symbol, s)) {
                fprintf(stderr, "ptx: the value of %.*s is not implemented\n", (int)symbol.length,
                        symbol.name);
                return NULL;
            }
            symbol_add(&m->globals, symbol);
            s = strchr(s, ';');
        }
    }
    return m;
}

void ptx_close(struct ptx_module *m)
{
    for (int n = 0; n < m->num_kernels; n++) {
        free(m->kernels[n].code);
        free(m->kernels[n].constants);
        free(m->kernels[n].parameters);
    }
    while (m->globals) {
        struct symbol *s = m->globals;
        m->globals = s->next;
        if (s->kind == GLOBAL_SYMBOL) {
            void *at = (void *)(intptr_t)s->value;
            ptx_memory_remove(at);
            free(at);
        }
        free(s);
    }
    free(m->kernels);
    free(m);
}

struct ptx_kernel *ptx_find(struct ptx_module *m, const char *name)
{
    for (int n = 0; n < m->num_kernels; n++)
        if (m->kernels[n].name_length == strlen(name) &&
            !memcmp(m->kernels[n].name, name, strlen(name)))
            return &m->kernels[n];
    return NULL;
}
