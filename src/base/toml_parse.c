// SPDX-License-Identifier: Apache-2.0
#include "base/toml_parse.h"

#include "base/json.h"
#include "base/toml_lexer.h"

#include <ctype.h>
#include <stdlib.h>

enum { MAX_DEPTH = 100, MAX_MEMBERS = 20000 };

/* How a table was defined decides what may add to it. */
enum made_by {
    BY_PATH,     /* implicitly, by a longer header: its own header may follow */
    BY_HEADER,   /* [its.name] */
    BY_DOTS,     /* by a dotted key: later dotted keys may add to it, headers may not */
    BY_VALUE,    /* an inline table or array: closed */
    BY_ELEMENTS, /* [[its.name]] */
};

static enum status add_member(const struct toml_lexer *l, struct toml *parent, struct toml *child)
{
    if (parent->count >= MAX_MEMBERS) {
        toml_free(child);
        return toml_lexer_fail(l, "more than %d members", MAX_MEMBERS);
    }
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
    parent->count++;
    return STATUS_OK;
}

static struct toml *make_node(const struct toml_lexer *l, enum toml_kind kind, int made_by)
{
    struct toml *n = heap(sizeof *n);
    *n = (struct toml){
        .kind = kind, .line = l->line, .column = toml_lexer_column(l), .made_by = made_by};
    return n;
}

/* One part of a key: bare or quoted. */
static enum status read_key_part(struct toml_lexer *l, struct text *out)
{
    int c = toml_lexer_peek(l, 0);
    text_clear(out);
    if (c == '"' || c == '\'') {
        TRY(toml_lexer_read_string(l, false, out));
        return STATUS_OK;
    }
    while (toml_lexer_peek(l, 0) > 0 &&
           (isalnum(toml_lexer_peek(l, 0)) || toml_lexer_peek(l, 0) == '_' ||
            toml_lexer_peek(l, 0) == '-') &&
           toml_lexer_peek(l, 0) < 0x80)
        text_add(out, l->at++, 1);
    if (!out->len) return toml_lexer_fail(l, "expected a key");
    return STATUS_OK;
}

/* The parts of a dotted key. */
struct toml_path {
    char *parts[MAX_DEPTH];
    size_t lengths[MAX_DEPTH];
    int count;
};

static void path_release(struct toml_path *p)
{
    while (p->count) free(p->parts[--p->count]);
}

static enum status read_path(struct toml_lexer *l, struct toml_path *p)
{
    struct text part = {0};
    enum status st = STATUS_OK;
    p->count = 0;
    for (;;) {
        toml_lexer_skip_blanks(l);
        TRY_OUT(read_key_part(l, &part));
        if (p->count == MAX_DEPTH) {
            st = toml_lexer_fail(l, "a key of more than %d parts", MAX_DEPTH);
            goto out;
        }
        p->lengths[p->count] = part.len;
        p->parts[p->count++] = heap_string(part.data, part.len);
        toml_lexer_skip_blanks(l);
        if (toml_lexer_peek(l, 0) != '.') break;
        l->at++;
    }
out:
    text_release(&part);
    return st;
}

static void set_key(struct toml *n, const struct toml_path *p, int part)
{
    n->key = heap_string(p->parts[part], p->lengths[part]);
    n->key_len = p->lengths[part];
}

static struct toml *find_part(const struct toml *table, const struct toml_path *p, int part)
{
    return toml_find(table, p->parts[part], p->lengths[part]);
}

static enum status read_value(struct toml_lexer *l, int depth, struct toml **out);

/* Descends from `table` through all but the last part of a dotted key, creating missing tables. */
static enum status descend_dots(struct toml_lexer *l, struct toml **table,
                                const struct toml_path *p)
{
    for (int i = 0; i + 1 < p->count; i++) {
        struct toml *next = find_part(*table, p, i);
        if (!next) {
            next = make_node(l, TOML_TABLE, BY_DOTS);
            set_key(next, p, i);
            TRY(add_member(l, *table, next));
        } else if (next->kind != TOML_TABLE || next->made_by != BY_DOTS) {
            return toml_lexer_fail(l, "\"%s\" is already defined, on line %d", p->parts[i],
                                   next->line);
        }
        *table = next;
    }
    return STATUS_OK;
}

/* key = value, into `table`. */
static enum status read_pair(struct toml_lexer *l, struct toml *table, int depth)
{
    struct toml_path p;
    struct toml *value = NULL;
    enum status st = read_path(l, &p);
    if (st) goto out;
    const char *key = p.parts[p.count - 1];
    TRY_OUT(descend_dots(l, &table, &p));
    struct toml *old = find_part(table, &p, p.count - 1);
    if (old) {
        st = toml_lexer_fail(l, "\"%s\" is already defined, on line %d", key, old->line);
        goto out;
    }
    if (toml_lexer_peek(l, 0) != '=') {
        st = toml_lexer_fail(l, "expected = after the key \"%s\"", key);
        goto out;
    }
    l->at++;
    toml_lexer_skip_blanks(l);
    TRY_OUT(read_value(l, depth + p.count, &value));
    set_key(value, &p, p.count - 1);
    st = add_member(l, table, value);
    value = NULL;
out:
    toml_free(value);
    path_release(&p);
    return st;
}

static enum status read_array(struct toml_lexer *l, int depth, struct toml *array)
{
    l->at++;
    for (;;) {
        TRY(toml_lexer_skip_lines(l));
        if (toml_lexer_peek(l, 0) == ']') break;
        struct toml *value;
        TRY(read_value(l, depth + 1, &value));
        TRY(add_member(l, array, value));
        TRY(toml_lexer_skip_lines(l));
        if (toml_lexer_peek(l, 0) == ']') break;
        if (toml_lexer_peek(l, 0) != ',') return toml_lexer_fail(l, "expected , or ] in the array");
        l->at++;
    }
    l->at++;
    return STATUS_OK;
}

/* Closes an inline table with the tables that dotted keys created in it. */
static void close_table(struct toml *table)
{
    for (struct toml *c = table->first; c; c = c->next)
        if (c->kind == TOML_TABLE) close_table(c);
    table->made_by = BY_VALUE;
}

static enum status read_inline_table(struct toml_lexer *l, int depth, struct toml *table)
{
    l->at++;
    toml_lexer_skip_blanks(l);
    if (toml_lexer_peek(l, 0) != '}')
        for (;;) {
            TRY(read_pair(l, table, depth + 1));
            toml_lexer_skip_blanks(l);
            if (toml_lexer_peek(l, 0) == '}') break;
            if (toml_lexer_peek(l, 0) != ',')
                return toml_lexer_fail(l, "expected , or } in the inline table");
            l->at++;
            toml_lexer_skip_blanks(l);
        }
    l->at++;
    close_table(table);
    return STATUS_OK;
}

static enum status read_value(struct toml_lexer *l, int depth, struct toml **out)
{
    int c = toml_lexer_peek(l, 0);
    struct toml *v = make_node(l, TOML_STRING, BY_VALUE);
    enum status st = STATUS_OK;
    *out = NULL;
    if (depth > MAX_DEPTH) {
        st = toml_lexer_fail(l, "nested more than %d deep", MAX_DEPTH);
    } else if (c == '"' || c == '\'') {
        struct text t = {0};
        st = toml_lexer_read_string(l, true, &t);
        v->text = t.data, v->len = t.len;
    } else if (c == '[') {
        v->kind = TOML_ARRAY;
        st = read_array(l, depth, v);
    } else if (c == '{') {
        v->kind = TOML_TABLE;
        st = read_inline_table(l, depth, v);
    } else {
        st = toml_lexer_read_scalar(l, v);
    }
    if (st)
        toml_free(v);
    else
        *out = v;
    return st;
}

/* One step along a header's path; an array of tables stands for its last table. */
static enum status descend_header(struct toml_lexer *l, struct toml **table,
                                  const struct toml_path *p, int part)
{
    struct toml *next = find_part(*table, p, part);
    if (!next) {
        next = make_node(l, TOML_TABLE, BY_PATH);
        set_key(next, p, part);
        TRY(add_member(l, *table, next));
    }
    if (next->kind == TOML_ARRAY && next->made_by == BY_ELEMENTS)
        next = next->last;
    else if (next->kind != TOML_TABLE || next->made_by == BY_VALUE)
        return toml_lexer_fail(l, "\"%s\" is already defined, on line %d", p->parts[part],
                               next->line);
    *table = next;
    return STATUS_OK;
}

static enum status open_table(struct toml_lexer *l, struct toml **table, const struct toml_path *p,
                              int part)
{
    struct toml *old = find_part(*table, p, part);
    if (old) {
        if (old->kind != TOML_TABLE || old->made_by != BY_PATH)
            return toml_lexer_fail(l, "\"%s\" is already defined, on line %d", p->parts[part],
                                   old->line);
        old->made_by = BY_HEADER;
        old->line = l->line;
        *table = old;
        return STATUS_OK;
    }
    struct toml *fresh = make_node(l, TOML_TABLE, BY_HEADER);
    set_key(fresh, p, part);
    TRY(add_member(l, *table, fresh));
    *table = fresh;
    return STATUS_OK;
}

static enum status open_element(struct toml_lexer *l, struct toml **table,
                                const struct toml_path *p, int part)
{
    struct toml *array = find_part(*table, p, part);
    if (array && (array->kind != TOML_ARRAY || array->made_by != BY_ELEMENTS))
        return toml_lexer_fail(l, "\"%s\" is already defined, on line %d", p->parts[part],
                               array->line);
    if (!array) {
        array = make_node(l, TOML_ARRAY, BY_ELEMENTS);
        set_key(array, p, part);
        TRY(add_member(l, *table, array));
    }
    struct toml *fresh = make_node(l, TOML_TABLE, BY_HEADER);
    TRY(add_member(l, array, fresh));
    *table = fresh;
    return STATUS_OK;
}

/* [a.b] or [[a.b]]; sets *table to the table it names. */
static enum status read_header(struct toml_lexer *l, struct toml *root, struct toml **table)
{
    struct toml_path p;
    enum status st = STATUS_OK;
    bool element = toml_lexer_peek(l, 1) == '[';
    l->at += element ? 2 : 1;
    st = read_path(l, &p);
    if (st) goto out;
    if (toml_lexer_peek(l, 0) != ']' || (element && toml_lexer_peek(l, 1) != ']')) {
        st = toml_lexer_fail(l,
                             element ? "expected ]] after the name" : "expected ] after the name");
        goto out;
    }
    *table = root;
    for (int i = 0; i + 1 < p.count; i++) TRY_OUT(descend_header(l, table, &p, i));
    TRY_OUT((element ? open_element : open_table)(l, table, &p, p.count - 1));
    l->at += element ? 2 : 1;
out:
    path_release(&p);
    return st;
}

static enum status read_document(struct toml_lexer *l, struct toml *root)
{
    struct toml *table = root;
    for (;;) {
        TRY(toml_lexer_skip_lines(l));
        if (l->at == l->end) return STATUS_OK;
        if (toml_lexer_peek(l, 0) == '[')
            TRY(read_header(l, root, &table));
        else
            TRY(read_pair(l, table, 0));
        TRY(toml_lexer_end_line(l));
    }
}

static enum status init_lexer(struct toml_lexer *l, const char *bytes, size_t len, const char *name)
{
    const char *start = bytes + text_bom_length(bytes, len);
    *l = (struct toml_lexer){start, bytes + len, start, name, 1};
    if (!text_is_utf8(bytes, len)) FAIL(DATA, "%s: not valid UTF-8", name);
    return STATUS_OK;
}

enum status toml_parse(const char *bytes, size_t len, const char *name, struct toml **out)
{
    struct toml_lexer l;
    *out = NULL;
    TRY(init_lexer(&l, bytes, len, name));
    struct toml *root = make_node(&l, TOML_TABLE, BY_HEADER);
    enum status st = read_document(&l, root);
    if (st)
        toml_free(root);
    else
        *out = root;
    return st;
}

enum status toml_parse_value(const char *bytes, size_t len, const char *name, struct toml **out)
{
    struct toml_lexer l;
    *out = NULL;
    TRY(init_lexer(&l, bytes, len, name));
    toml_lexer_skip_blanks(&l);
    TRY(read_value(&l, 0, out));
    enum status st = toml_lexer_end_line(&l);
    if (!st && l.at != l.end) st = toml_lexer_fail(&l, "trailing characters after the value");
    if (st) {
        toml_free(*out);
        *out = NULL;
    }
    return st;
}
