// SPDX-License-Identifier: Apache-2.0
#include "formats/yaml_tree.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MAX_DEPTH = 64, MAX_NODES = 20000 };

struct yaml_anchor {
    char *name;
    const struct yaml_tree *node;
};

struct yaml_builder {
    const char *name;
    struct yaml_tree *root, *open; /* `open`: the current container, or NULL */
    char *key;                     /* its value is still to come */
    int depth;
    size_t nodes;
    struct yaml_anchor *anchors;
    size_t num_anchors;
    yaml_mark_t at;
};

static enum status fail_at(const struct yaml_builder *b, const char *what)
{
    FAIL(DATA, "%s:%zu:%zu: %s", b->name, b->at.line + 1, b->at.column + 1, what);
}

void yaml_tree_free(struct yaml_tree *v)
{
    if (!v) return;
    for (struct yaml_tree *child = v->first, *next; child; child = next) {
        next = child->next;
        yaml_tree_free(child); /* recursion is bounded by MAX_DEPTH */
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

/* Adds the node to the open container, under the pending key if that is a mapping. */
static void attach(struct yaml_builder *b, struct yaml_tree *v)
{
    v->line = (int)b->at.line + 1, v->column = (int)b->at.column + 1;
    if (!b->open) {
        b->root = v;
        return;
    }
    if (b->open->kind == YAML_MAP) v->key = b->key, b->key = NULL;
    append(b->open, v);
}

static enum status new_node(struct yaml_builder *b, enum yaml_tree_kind kind,
                            struct yaml_tree **out)
{
    if (++b->nodes > MAX_NODES)
        FAIL(DATA, "%s:%zu:%zu: more than %d values", b->name, b->at.line + 1, b->at.column + 1,
             MAX_NODES);
    *out = heap(sizeof **out);
    (*out)->kind = kind;
    return STATUS_OK;
}

static enum status copy_tree(struct yaml_builder *b, const struct yaml_tree *v, int depth,
                             struct yaml_tree **out)
{
    *out = NULL;
    if (depth > MAX_DEPTH) return fail_at(b, "nested more than 64 levels deep");
    TRY(new_node(b, v->kind, out));
    (*out)->line = v->line, (*out)->column = v->column, (*out)->plain = v->plain;
    if (v->text) (*out)->text = heap_strdup(v->text);
    if (v->key) (*out)->key = heap_strdup(v->key);
    for (const struct yaml_tree *child = v->first; child; child = child->next) {
        struct yaml_tree *duplicate;
        enum status st = copy_tree(b, child, depth + 1, &duplicate);
        if (duplicate) append(*out, duplicate);
        TRY(st);
    }
    return STATUS_OK;
}

static void add_anchor(struct yaml_builder *b, const yaml_char_t *name, const struct yaml_tree *v)
{
    if (!name) return;
    b->anchors = heap_grow(b->anchors, b->num_anchors + 1, sizeof *b->anchors);
    b->anchors[b->num_anchors++] = (struct yaml_anchor){heap_strdup((const char *)name), v};
}

static enum status resolve_alias(struct yaml_builder *b, const char *name)
{
    const struct yaml_tree *target = NULL;
    for (size_t i = b->num_anchors; i > 0 && !target; i--) /* the last definition wins */
        if (!strcmp(b->anchors[i - 1].name, name)) target = b->anchors[i - 1].node;
    if (!target) return fail_at(b, "unknown anchor");
    if (b->open && b->open->kind == YAML_MAP && !b->key)
        return fail_at(b, "a key must not be an alias");
    for (const struct yaml_tree *ancestor = b->open; ancestor; ancestor = ancestor->parent)
        if (ancestor == target) return fail_at(b, "an anchor must not contain its own alias");
    struct yaml_tree *duplicate;
    enum status st = copy_tree(b, target, b->depth, &duplicate);
    if (!st) {
        free(duplicate->key), duplicate->key = NULL;
        attach(b, duplicate);
        return STATUS_OK;
    }
    yaml_tree_free(duplicate);
    return st;
}

static enum status check_tag(struct yaml_builder *b, const yaml_char_t *tag)
{
    static const char core[] = "tag:yaml.org,2002:";
    static const char *const known[] = {"str", "int", "float", "bool", "null", "map", "seq"};
    const char *rest = (const char *)tag;
    if (!tag || !strcmp(rest, "!")) return STATUS_OK;
    if (!strncmp(rest, core, sizeof core - 1))
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (!strcmp(rest + sizeof core - 1, known[i])) return STATUS_OK;
    FAIL(DATA, "%s:%zu:%zu: tag %.80s is not supported: objects are never constructed", b->name,
         b->at.line + 1, b->at.column + 1, rest);
}

static enum status add_scalar(struct yaml_builder *b, const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    size_t len = e->data.scalar.length;
    TRY(check_tag(b, e->data.scalar.tag));
    if (memchr(text, 0, len)) return fail_at(b, "a scalar must not contain NUL");
    if (b->open && b->open->kind == YAML_MAP && !b->key) {
        if (yaml_tree_get(b->open, text))
            FAIL(DATA, "%s:%zu:%zu: duplicate key %.80s", b->name, b->at.line + 1, b->at.column + 1,
                 text);
        b->key = heap_string(text, len);
        return STATUS_OK;
    }
    struct yaml_tree *v = NULL;
    TRY(new_node(b, YAML_SCALAR, &v));
    v->text = heap_string(text, len);
    v->plain = e->data.scalar.plain_implicit && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    add_anchor(b, e->data.scalar.anchor, v);
    attach(b, v);
    return STATUS_OK;
}

static enum status begin_container(struct yaml_builder *b, enum yaml_tree_kind kind,
                                   const yaml_char_t *anchor, const yaml_char_t *tag)
{
    struct yaml_tree *v = NULL;
    TRY(check_tag(b, tag));
    if (b->open && b->open->kind == YAML_MAP && !b->key)
        return fail_at(b, "a key must be a scalar");
    if (b->depth == MAX_DEPTH) return fail_at(b, "nested more than 64 levels deep");
    TRY(new_node(b, kind, &v));
    add_anchor(b, anchor, v);
    attach(b, v);
    b->depth++;
    b->open = v;
    return STATUS_OK;
}

static enum status merge_into(struct yaml_builder *b, struct yaml_tree *target,
                              const struct yaml_tree *source)
{
    if (source->kind == YAML_LIST) {
        for (const struct yaml_tree *item = source->first; item; item = item->next) {
            if (item->kind != YAML_MAP) return fail_at(b, "<< expects mappings");
            TRY(merge_into(b, target, item));
        }
        return STATUS_OK;
    }
    if (source->kind != YAML_MAP) return fail_at(b, "<< expects a mapping");
    for (const struct yaml_tree *item = source->first; item; item = item->next) {
        struct yaml_tree *duplicate;
        if (yaml_tree_get(target, item->key)) continue;
        enum status st = copy_tree(b, item, b->depth, &duplicate);
        if (duplicate) append(target, duplicate);
        TRY(st);
    }
    return STATUS_OK;
}

/* Removes the key << from a mapping, and merges its value into the mapping. */
static enum status resolve_merge_key(struct yaml_builder *b, struct yaml_tree *map)
{
    struct yaml_tree *previous = NULL, *source = map->first;
    while (source && strcmp(source->key, "<<")) previous = source, source = source->next;
    if (!source) return STATUS_OK;
    *(previous ? &previous->next : &map->first) = source->next;
    if (map->last == source) map->last = previous;
    map->count--;
    enum status st = merge_into(b, map, source);
    /* anchors inside the removed value are invalid now */
    for (size_t i = 0; i < b->num_anchors; i++)
        for (const struct yaml_tree *v = b->anchors[i].node; v; v = v->parent)
            if (v == source) {
                b->anchors[i].node = NULL;
                break;
            }
    yaml_tree_free(source);
    return st;
}

static enum status end_container(struct yaml_builder *b)
{
    struct yaml_tree *v = b->open;
    if (v->kind == YAML_MAP) TRY(resolve_merge_key(b, v));
    b->open = v->parent;
    b->depth--;
    return STATUS_OK;
}

static enum status handle_event(struct yaml_builder *b, const yaml_event_t *e)
{
    b->at = e->start_mark;
    switch ((int)e->type) {
    case YAML_DOCUMENT_START_EVENT:
        return b->root ? fail_at(b, "expected a single document, found a second one") : STATUS_OK;
    case YAML_SCALAR_EVENT: return add_scalar(b, e);
    case YAML_ALIAS_EVENT: return resolve_alias(b, (const char *)e->data.alias.anchor);
    case YAML_SEQUENCE_START_EVENT:
        return begin_container(b, YAML_LIST, e->data.sequence_start.anchor,
                               e->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return begin_container(b, YAML_MAP, e->data.mapping_start.anchor,
                               e->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: return end_container(b);
    default: return STATUS_OK;
    }
}

static enum status build_tree(struct yaml_builder *b, yaml_parser_t *parser)
{
    for (bool done = false; !done;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) {
            b->at = parser->problem_mark;
            FAIL(DATA, "%s:%zu:%zu: not YAML: %s", b->name, b->at.line + 1, b->at.column + 1,
                 parser->problem ? parser->problem : "unreadable input");
        }
        done = event.type == YAML_STREAM_END_EVENT;
        enum status st = handle_event(b, &event);
        yaml_event_delete(&event);
        TRY(st);
    }
    if (!b->root) FAIL(DATA, "%s: the file has no YAML document", b->name);
    return STATUS_OK;
}

enum status yaml_tree_parse(const char *bytes, size_t len, const char *name, struct yaml_tree **out)
{
    yaml_parser_t parser;
    struct yaml_builder b = {.name = name};
    *out = NULL;
    if (!yaml_parser_initialize(&parser))
        FAIL(MEMORY, "%s: out of memory for the YAML parser", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)(bytes ? bytes : ""), len);
    enum status st = build_tree(&b, &parser);
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
