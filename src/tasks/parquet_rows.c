// SPDX-License-Identifier: Apache-2.0
#include "tasks/parquet_rows.h"

#include "base/json.h"
#include "formats/parquet_column.h"

#include <stdlib.h>
#include <string.h>

/* A leaf that has a place in the JSON: [group.]name, a value or a list of values. */
struct json_column {
    size_t group; /* node of the struct it belongs to; 0: none, since node 0 is the root */
    char *name;
    bool is_list;
    struct parquet_column values;
};

struct parquet_rows {
    struct parquet file;
    struct json_column *columns;
    size_t num_columns;
    uint64_t row;
    struct text value; /* scratch */
};

static char *name_of(const struct parquet_node *n) { return heap_string(n->name, n->name_len); }

/* The node that users see: for the element of a list, the list. */
static size_t visible_node(const struct parquet *p, size_t leaf)
{
    size_t node = p->leaves[leaf].node;
    for (size_t n = node; n; n = p->nodes[n].parent) {
        if (!p->nodes[n].is_list) continue;
        bool single = p->nodes[n].end == p->nodes[node].end && node - n <= 2;
        return single ? n : 0; /* not a list of structs or of lists */
    }
    return node;
}

/* Whether the leaf has a place in the JSON. */
static bool find_place(const struct parquet *p, size_t leaf, struct json_column *c)
{
    const struct parquet_leaf *l = &p->leaves[leaf];
    bool known = l->type == PARQUET_BYTES || l->type == PARQUET_I32 || l->type == PARQUET_I64 ||
                 l->type == PARQUET_BOOL;
    size_t node = visible_node(p, leaf);
    if (!known || l->max_rep > 1 || !node) return false;
    c->group = p->nodes[node].parent;
    if (c->group && p->nodes[c->group].parent) return false; /* nested deeper */
    if (c->group && p->nodes[c->group].repetition == PARQUET_REPEATED) return false;
    c->is_list = l->max_rep == 1;
    c->name = name_of(&p->nodes[node]);
    return true;
}

enum status parquet_rows_open(struct parquet_rows **out, const char *path)
{
    struct parquet_rows *r = heap(sizeof *r);
    enum status st = parquet_open(&r->file, path);
    if (!st) r->columns = heap((r->file.num_leaves + 1) * sizeof *r->columns);
    for (size_t leaf = 0; !st && leaf < r->file.num_leaves; leaf++) {
        struct json_column *c = &r->columns[r->num_columns];
        if (!find_place(&r->file, leaf, c)) continue;
        parquet_column_init(&c->values, &r->file, leaf);
        r->num_columns++;
    }
    *out = st ? NULL : r;
    if (st) parquet_rows_close(r);
    return st;
}

void parquet_rows_close(struct parquet_rows *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->num_columns; i++) {
        parquet_column_release(&r->columns[i].values);
        free(r->columns[i].name);
    }
    free(r->columns);
    parquet_close(&r->file);
    text_release(&r->value);
    free(r);
}

static enum status write_value(struct parquet_rows *r, const struct json_column *c,
                               const struct column_entry *e, struct json_writer *w)
{
    const char *key = c->is_list ? NULL : c->name;
    enum parquet_type type = c->values.leaf->type;
    if (type == PARQUET_BOOL) {
        json_write_bool(w, key, e->number != 0);
    } else if (type != PARQUET_BYTES) {
        json_write_int(w, key, e->number);
    } else {
        if (e->bytes.len && memchr(e->bytes.data, 0, e->bytes.len))
            FAIL(DATA, "%s, row %llu: the text of column \"%s\" contains a NUL", r->file.path,
                 (unsigned long long)r->row, c->name);
        text_clear(&r->value);
        text_adds(&r->value, "");
        text_add(&r->value, e->bytes.data, e->bytes.len);
        json_write_string(w, key, r->value.data);
    }
    return STATUS_OK;
}

static enum status write_column(struct parquet_rows *r, struct json_column *c,
                                struct json_writer *w)
{
    bool more = true;
    if (c->is_list) json_begin_array(w, c->name, JSON_COMPACT);
    while (more) {
        struct column_entry e;
        TRY(parquet_column_next(&c->values, &e));
        if (e.has_value)
            TRY(write_value(r, c, &e, w));
        else if (!c->is_list)
            json_write_null(w, c->name);
        TRY(parquet_column_has_more(&c->values, &more));
        if (more && !c->is_list)
            FAIL(DATA, "%s, row %llu: column \"%s\" repeats", r->file.path,
                 (unsigned long long)r->row, c->name);
    }
    if (c->is_list) json_end_array(w);
    return STATUS_OK;
}

enum status parquet_rows_next(struct parquet_rows *r, struct text *json, bool *end)
{
    struct json_writer w = {.text = json};
    size_t group = 0;
    *end = r->row == r->file.num_rows;
    if (*end) return STATUS_OK;
    text_clear(json);
    json_begin_object(&w, NULL, JSON_COMPACT);
    for (size_t i = 0; i < r->num_columns; i++) {
        struct json_column *c = &r->columns[i];
        if (c->group != group && group) json_end_object(&w);
        if (c->group != group && c->group) {
            char *name = name_of(&r->file.nodes[c->group]);
            json_begin_object(&w, name, JSON_COMPACT);
            free(name);
        }
        group = c->group;
        if (!r->row) TRY(parquet_column_seek(&c->values, 0));
        TRY(write_column(r, c, &w));
    }
    if (group) json_end_object(&w);
    json_end_object(&w);
    json_finish(&w);
    r->row++;
    return file_map_check(&r->file.map);
}
