// SPDX-License-Identifier: Apache-2.0
#include "formats/yaml_tree.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MOST_DEPTH = 64, MOST_NODES = 20000 };

struct anchor {
    char *name;
    const struct yaml_tree *node;
};

struct builder {
    const char *name;
    struct yaml_tree *root, *open; /* the container that is being filled; NULL: none */
    char *key;                     /* read, and its value is not */
    int depth;
    size_t nodes;
    struct anchor *anchors;
    size_t num_anchors;
    yaml_mark_t at;
};

static enum status refuse(const struct builder *b, const char *what)
{
    FAIL(DATA, "%s:%zu:%zu: %s", b->name, b->at.line + 1, b->at.column + 1, what);
}

void yaml_tree_free(struct yaml_tree *v)
{
    if (!v) return;
    for (struct yaml_tree *child = v->first, *next; child; child = next) {
        next = child->next;
        yaml_tree_free(child); /* as deep as the limit */
    }
    free(v->key), free(v->text), free(v);
}

struct yaml_tree *yaml_tree_get(const struct yaml_tree *map, const char *key)
{
    if (!map || map->kind != YAML_MAP) return NULL;
    for (struct yaml_tree *v = map->first; v; v = v->next)
        if (!strcmp(v->key, key)) return v;
    return NULL;
}

bool yaml_tree_is_null(const struct yaml_tree *v)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    if (!v) return true;
    if (v->kind != YAML_SCALAR || !v->plain) return false;
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        if (!strcmp(v->text, nulls[i])) return true;
    return false;
}

const char *yaml_tree_kind_name(const struct yaml_tree *v)
{
    return v->kind == YAML_MAP ? "a mapping" : v->kind == YAML_LIST ? "a list" : "a value";
}

static void append(struct yaml_tree *parent, struct yaml_tree *child)
{
    child->parent = parent;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
    parent->count++;
}

/* Puts the node where the parser is; the key, if any, becomes its own. */
static void place(struct builder *b, struct yaml_tree *v)
{
    v->line = (int)b->at.line + 1, v->column = (int)b->at.column + 1;
    if (!b->open) {
        b->root = v;
        return;
    }
    if (b->open->kind == YAML_MAP) v->key = b->key, b->key = NULL;
    append(b->open, v);
}

static enum status make(struct builder *b, enum yaml_tree_kind kind, struct yaml_tree **out)
{
    if (++b->nodes > MOST_NODES)
        FAIL(DATA, "%s:%zu:%zu: more than %d values", b->name, b->at.line + 1, b->at.column + 1,
             MOST_NODES);
    *out = heap(sizeof **out);
    (*out)->kind = kind;
    return STATUS_OK;
}

static enum status copy(struct builder *b, const struct yaml_tree *v, int depth,
                        struct yaml_tree **out)
{
    *out = NULL;
    if (depth > MOST_DEPTH) return refuse(b, "nested more than 64 deep");
    TRY(make(b, v->kind, out));
    (*out)->line = v->line, (*out)->column = v->column, (*out)->plain = v->plain;
    if (v->text) (*out)->text = heap_string(v->text, strlen(v->text));
    if (v->key) (*out)->key = heap_string(v->key, strlen(v->key));
    for (const struct yaml_tree *child = v->first; child; child = child->next) {
        struct yaml_tree *same;
        enum status st = copy(b, child, depth + 1, &same);
        if (same) append(*out, same);
        TRY(st);
    }
    return STATUS_OK;
}

static void name_anchor(struct builder *b, const yaml_char_t *name, const struct yaml_tree *v)
{
    if (!name) return;
    b->anchors = heap_grow(b->anchors, b->num_anchors + 1, sizeof *b->anchors);
    b->anchors[b->num_anchors++] =
        (struct anchor){heap_string((const char *)name, strlen((const char *)name)), v};
}

static enum status alias(struct builder *b, const char *name)
{
    const struct yaml_tree *named = NULL;
    for (size_t i = b->num_anchors; i > 0 && !named; i--) /* the newest of that name */
        if (!strcmp(b->anchors[i - 1].name, name)) named = b->anchors[i - 1].node;
    if (!named) return refuse(b, "an alias without its anchor");
    if (b->open && b->open->kind == YAML_MAP && !b->key) return refuse(b, "a key that is an alias");
    for (const struct yaml_tree *around = b->open; around; around = around->parent)
        if (around == named) return refuse(b, "an anchor that holds itself");
    struct yaml_tree *same;
    enum status st = copy(b, named, b->depth, &same);
    if (!st) {
        free(same->key), same->key = NULL;
        place(b, same);
        return STATUS_OK;
    }
    yaml_tree_free(same);
    return st;
}

static enum status plain_tag(struct builder *b, const yaml_char_t *tag)
{
    static const char core[] = "tag:yaml.org,2002:";
    static const char *const known[] = {"str", "int", "float", "bool", "null", "map", "seq"};
    const char *rest = (const char *)tag;
    if (!tag || !strcmp(rest, "!")) return STATUS_OK;
    if (!strncmp(rest, core, sizeof core - 1))
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (!strcmp(rest + sizeof core - 1, known[i])) return STATUS_OK;
    FAIL(DATA, "%s:%zu:%zu: the tag %.80s: objects of programs are not made", b->name,
         b->at.line + 1, b->at.column + 1, rest);
}

static enum status scalar(struct builder *b, const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    size_t len = e->data.scalar.length;
    TRY(plain_tag(b, e->data.scalar.tag));
    if (memchr(text, 0, len)) return refuse(b, "a NUL inside text");
    if (b->open && b->open->kind == YAML_MAP && !b->key) {
        if (yaml_tree_get(b->open, text))
            FAIL(DATA, "%s:%zu:%zu: the key %.80s is there twice", b->name, b->at.line + 1,
                 b->at.column + 1, text);
        b->key = heap_string(text, len);
        return STATUS_OK;
    }
    struct yaml_tree *v = NULL;
    TRY(make(b, YAML_SCALAR, &v));
    v->text = heap_string(text, len);
    v->plain = e->data.scalar.plain_implicit && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    name_anchor(b, e->data.scalar.anchor, v);
    place(b, v);
    return STATUS_OK;
}

static enum status begin(struct builder *b, enum yaml_tree_kind kind, const yaml_char_t *anchor,
                         const yaml_char_t *tag)
{
    struct yaml_tree *v = NULL;
    TRY(plain_tag(b, tag));
    if (b->open && b->open->kind == YAML_MAP && !b->key)
        return refuse(b, "a key that is no word but a list or a mapping");
    if (b->depth == MOST_DEPTH) return refuse(b, "nested more than 64 deep");
    TRY(make(b, kind, &v));
    name_anchor(b, anchor, v);
    place(b, v);
    b->depth++;
    b->open = v;
    return STATUS_OK;
}

static enum status merge(struct builder *b, struct yaml_tree *into, const struct yaml_tree *from)
{
    if (from->kind == YAML_LIST) {
        for (const struct yaml_tree *each = from->first; each; each = each->next) {
            if (each->kind != YAML_MAP) return refuse(b, "<< wants mappings");
            TRY(merge(b, into, each));
        }
        return STATUS_OK;
    }
    if (from->kind != YAML_MAP) return refuse(b, "<< wants a mapping");
    for (const struct yaml_tree *each = from->first; each; each = each->next) {
        struct yaml_tree *same;
        if (yaml_tree_get(into, each->key)) continue;
        enum status st = copy(b, each, b->depth, &same);
        if (same) append(into, same);
        TRY(st);
    }
    return STATUS_OK;
}

/* Takes the member << out of its map, and what it names in. */
static enum status take_merge(struct builder *b, struct yaml_tree *map)
{
    struct yaml_tree *before = NULL, *from = map->first;
    while (from && strcmp(from->key, "<<")) before = from, from = from->next;
    if (!from) return STATUS_OK;
    *(before ? &before->next : &map->first) = from->next;
    if (map->last == from) map->last = before;
    map->count--;
    enum status st = merge(b, map, from);
    for (size_t i = 0; i < b->num_anchors; i++) /* what it held can be named no more */
        for (const struct yaml_tree *v = b->anchors[i].node; v; v = v->parent)
            if (v == from) {
                b->anchors[i].node = NULL;
                break;
            }
    yaml_tree_free(from);
    return st;
}

static enum status end(struct builder *b)
{
    struct yaml_tree *v = b->open;
    if (v->kind == YAML_MAP) TRY(take_merge(b, v));
    b->open = v->parent;
    b->depth--;
    return STATUS_OK;
}

static enum status take(struct builder *b, const yaml_event_t *e)
{
    b->at = e->start_mark;
    switch ((int)e->type) {
    case YAML_DOCUMENT_START_EVENT:
        return b->root ? refuse(b, "a second document; one is wanted") : STATUS_OK;
    case YAML_SCALAR_EVENT: return scalar(b, e);
    case YAML_ALIAS_EVENT: return alias(b, (const char *)e->data.alias.anchor);
    case YAML_SEQUENCE_START_EVENT:
        return begin(b, YAML_LIST, e->data.sequence_start.anchor, e->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return begin(b, YAML_MAP, e->data.mapping_start.anchor, e->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: return end(b);
    default: return STATUS_OK;
    }
}

static enum status build(struct builder *b, yaml_parser_t *parser)
{
    for (bool done = false; !done;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) {
            b->at = parser->problem_mark;
            FAIL(DATA, "%s:%zu:%zu: not YAML: %s", b->name, b->at.line + 1, b->at.column + 1,
                 parser->problem ? parser->problem : "the bytes cannot be read");
        }
        done = event.type == YAML_STREAM_END_EVENT;
        enum status st = take(b, &event);
        yaml_event_delete(&event);
        TRY(st);
    }
    if (!b->root) FAIL(DATA, "%s: no YAML in it", b->name);
    return STATUS_OK;
}

enum status yaml_tree_parse(const char *bytes, size_t len, const char *name, struct yaml_tree **out)
{
    yaml_parser_t parser;
    struct builder b = {.name = name};
    *out = NULL;
    if (!yaml_parser_initialize(&parser)) FAIL(MEMORY, "%s: no memory for its reader", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)(bytes ? bytes : ""), len);
    enum status st = build(&b, &parser);
    yaml_parser_delete(&parser);
    for (size_t i = 0; i < b.num_anchors; i++) free(b.anchors[i].name);
    free(b.anchors), free(b.key);
    if (st) {
        yaml_tree_free(b.root);
        return st;
    }
    *out = b.root;
    return STATUS_OK;
}
