// SPDX-License-Identifier: Apache-2.0
#include "formats/parquet.h"

#include "formats/column_path.h"
#include "formats/thrift.h"

#include <stdlib.h>
#include <string.h>

enum { TAIL = 8, MAX_DEPTH = 200 };
enum { CONVERTED_MAP = 1, CONVERTED_MAP_ENTRIES, CONVERTED_LIST, CONVERTED_U8 = 11 };

/* A group node whose children are not complete while the tree is built. */
struct open_node {
    size_t node, children_left;
    int def, rep, list_def;
};

static enum status add_leaf(struct parquet *p, int64_t type, int64_t type_bytes, bool is_u8,
                            const struct open_node *a)
{
    if (type < 0 || type >= PARQUET_TYPES)
        FAIL(DATA, "%s: unknown column type %lld", p->path, (long long)type);
    if (type == PARQUET_FIXED && (type_bytes < 0 || type_bytes > INT32_MAX))
        FAIL(DATA, "%s: invalid type_length %lld", p->path, (long long)type_bytes);
    if (a->def > UINT8_MAX || a->rep > UINT8_MAX)
        FAIL(UNSUPPORTED, "%s: columns nested deeper than %d levels are not supported", p->path,
             UINT8_MAX);
    p->nodes[p->num_nodes - 1].leaf = p->num_leaves;
    p->leaves[p->num_leaves++] =
        (struct parquet_leaf){p->num_nodes - 1,     (enum parquet_type)type,
                              (uint32_t)type_bytes, is_u8 && type == PARQUET_I32,
                              (uint8_t)a->def,      (uint8_t)a->rep,
                              (uint8_t)a->list_def};
    return STATUS_OK;
}

/* A SchemaElement.  Of the LogicalType union we read MAP (2), LIST (3) and INTEGER (10). */
struct schema_element {
    int64_t type, type_bytes, repetition, children, converted, bits, is_signed;
    bool is_list, is_map;
    struct thrift_bytes name;
};

static enum status read_element(struct reader *r, struct schema_element *e)
{
    *e = (struct schema_element){.type = -1, .converted = -1, .is_signed = 1, .repetition = -1};
    const struct thrift_field integer[] = {
        {1, .number = &e->bits}, {2, .number = &e->is_signed}, {0}};
    const struct thrift_field logical[] = {
        {2, .present = &e->is_map}, {3, .present = &e->is_list}, {10, .fields = integer}, {0}};
    const struct thrift_field fields[] = {
        {1, .number = &e->type},       {2, .number = &e->type_bytes},
        {3, .number = &e->repetition}, {4, .bytes = &e->name},
        {5, .number = &e->children},   {6, .number = &e->converted},
        {10, .fields = logical},       {0}};
    return thrift_read(r, fields);
}

/* Adds a node below the innermost open node; a group becomes the innermost one itself. */
static enum status add_node(struct parquet *p, const struct schema_element *e,
                            struct open_node *open, int *depth, size_t num_elements)
{
    size_t number = p->num_nodes++;
    const struct open_node *parent = number ? &open[*depth - 1] : NULL;
    struct open_node own = {number, (size_t)e->children, 0, 0, 0};
    if (parent) {
        if (e->repetition < PARQUET_REQUIRED || e->repetition > PARQUET_REPEATED)
            FAIL(DATA, "%s: schema node with unknown repetition %lld", p->path,
                 (long long)e->repetition);
        own.def = parent->def + (e->repetition != PARQUET_REQUIRED);
        own.rep = parent->rep + (e->repetition == PARQUET_REPEATED);
        own.list_def = e->repetition == PARQUET_REPEATED ? own.def : parent->list_def;
    }
    if (!e->name.data) FAIL(DATA, "%s: schema node without a name", p->path);
    if (e->children < 0 || (uint64_t)e->children > num_elements)
        FAIL(DATA, "%s: schema node with %lld children", p->path, (long long)e->children);
    p->nodes[number] = (struct parquet_node){
        .name = (const char *)e->name.data,
        .name_len = e->name.len,
        .repetition = parent ? (enum parquet_repetition)e->repetition : PARQUET_REQUIRED,
        .parent = parent ? parent->node : 0,
        .leaf = SIZE_MAX,
        .end = number + 1,
        .is_list = e->is_list || e->is_map ||
                   (e->converted >= CONVERTED_MAP && e->converted <= CONVERTED_LIST)};
    bool is_u8 = e->converted == CONVERTED_U8 || (e->bits == 8 && !e->is_signed);
    if (parent) open[*depth - 1].children_left--;
    if (!e->children) return add_leaf(p, e->type, e->type_bytes, is_u8, &own);
    if (*depth == MAX_DEPTH) FAIL(UNSUPPORTED, "%s: columns are nested too deeply", p->path);
    open[(*depth)++] = own;
    return STATUS_OK;
}

static enum status read_schema(struct parquet *p, struct thrift_list *list)
{
    struct open_node open[MAX_DEPTH];
    int depth = 0;
    if (list->type != THRIFT_STRUCT || list->count < 2)
        FAIL(DATA, "%s: the footer has no schema", p->path);
    p->nodes = heap_grow(NULL, list->count, sizeof *p->nodes);
    p->leaves = heap_grow(NULL, list->count, sizeof *p->leaves);
    for (size_t i = 0; i < list->count; i++) {
        struct schema_element e;
        TRY(read_element(&list->items, &e));
        if (i && !depth) FAIL(DATA, "%s: the schema has more nodes than its tree", p->path);
        if (!i && !e.children) FAIL(DATA, "%s: the schema has no columns", p->path);
        TRY(add_node(p, &e, open, &depth, list->count));
        while (depth && !open[depth - 1].children_left) p->nodes[open[--depth].node].end = i + 1;
    }
    if (depth) FAIL(DATA, "%s: the schema has fewer nodes than its tree", p->path);
    return STATUS_OK;
}

static enum status read_column_chunk(struct parquet *p, struct reader *r, size_t leaf,
                                     struct parquet_chunk *out)
{
    int64_t type = -1, codec = -1, values = -1, data = -1, dictionary = 0, uncompressed = 0;
    bool has_meta = false, is_encrypted = false;
    const struct thrift_field meta[] = {{1, .number = &type},
                                        {4, .number = &codec},
                                        {5, .number = &values},
                                        {6, .number = &uncompressed},
                                        {9, .number = &data},
                                        {11, .number = &dictionary},
                                        {0}};
    struct thrift_bytes file_path = {0};
    const struct thrift_field chunk[] = {{1, .bytes = &file_path},
                                         {3, .fields = meta, .present = &has_meta},
                                         {8, .present = &is_encrypted},
                                         {0}};
    TRY(thrift_read(r, chunk));
    if (is_encrypted) FAIL(UNSUPPORTED, "%s: encrypted columns are not supported", p->path);
    if (file_path.len)
        FAIL(UNSUPPORTED, "%s: column chunks in other files are not supported", p->path);
    if (!has_meta) FAIL(DATA, "%s: column chunk without metadata", p->path);
    if (type != (int64_t)p->leaves[leaf].type)
        FAIL(DATA, "%s: column chunk of type %lld in a column of type %d", p->path, (long long)type,
             p->leaves[leaf].type);
    int64_t at = dictionary > 0 && dictionary < data ? dictionary : data;
    if (!values)
        at = (int64_t)p->data_end; /* of an empty row group: some writers state no offset */
    if (values < 0 || at < 4 || (uint64_t)at > p->data_end)
        FAIL(DATA, "%s: column chunk of %lld values at byte %lld is outside the %llu bytes of data",
             p->path, (long long)values, (long long)at, (unsigned long long)p->data_end);
    *out =
        (struct parquet_chunk){.offset = (uint64_t)at,
                               .num_values = (uint64_t)values,
                               .uncompressed_bytes = uncompressed > 0 ? (uint64_t)uncompressed : 0};
    return codec_from_parquet(codec, p->path, &out->codec);
}

static enum status read_row_group(struct parquet *p, struct reader *r)
{
    struct thrift_list columns = {0};
    int64_t rows = -1;
    const struct thrift_field fields[] = {{1, .list = &columns}, {3, .number = &rows}, {0}};
    TRY(thrift_read(r, fields));
    if (columns.count != p->num_leaves || columns.type != THRIFT_STRUCT)
        FAIL(DATA, "%s: row group with %zu columns: expected %zu", p->path, columns.count,
             p->num_leaves);
    if (rows < 0 || rows > INT64_MAX - (int64_t)p->num_rows)
        FAIL(DATA, "%s: row group with %lld rows", p->path, (long long)rows);
    struct parquet_group *g = &p->groups[p->num_groups++];
    *g = (struct parquet_group){.first_row = p->num_rows, .num_rows = (uint64_t)rows};
    g->chunks = heap_grow(NULL, p->num_leaves, sizeof *g->chunks);
    p->num_rows += (uint64_t)rows;
    for (size_t leaf = 0; leaf < p->num_leaves; leaf++)
        TRY(read_column_chunk(p, &columns.items, leaf, &g->chunks[leaf]));
    return STATUS_OK;
}

/* The number of rows is the sum over row groups: some writers omit the total. */
static enum status read_footer(struct parquet *p, struct reader *r)
{
    struct thrift_list schema = {0}, groups = {0};
    const struct thrift_field fields[] = {{2, .list = &schema}, {4, .list = &groups}, {0}};
    TRY(thrift_read(r, fields));
    TRY(read_schema(p, &schema));
    if (groups.count && groups.type != THRIFT_STRUCT)
        FAIL(DATA, "%s: row groups must be structs", p->path);
    p->groups = heap_grow(NULL, groups.count + 1, sizeof *p->groups);
    for (size_t i = 0; i < groups.count; i++) TRY(read_row_group(p, &groups.items));
    return STATUS_OK;
}

enum status parquet_parse(struct parquet *p, const unsigned char *bytes, uint64_t size)
{
    uint32_t footer = 0;
    struct reader tail = {bytes + (size < TAIL ? 0 : size - TAIL), bytes + size, p->path};
    const char *magic = size < TAIL + 4 ? "" : (const char *)bytes + size - 4;
    if (size >= TAIL + 4 && !memcmp(magic, "PARE", 4))
        FAIL(UNSUPPORTED, "%s: encrypted Parquet files are not supported", p->path);
    if (size < TAIL + 4 || memcmp(magic, "PAR1", 4) || memcmp(bytes, "PAR1", 4))
        FAIL(DATA, "%s: not a Parquet file, or truncated", p->path);
    TRY(reader_u32(&tail, &footer, "the footer's length"));
    if (footer > size - TAIL - 4)
        FAIL(DATA, "%s: footer length %u exceeds the file of %llu bytes", p->path, footer,
             (unsigned long long)size);
    p->data_end = size - TAIL - footer;
    struct reader r = {bytes + p->data_end, bytes + size - TAIL, p->path};
    return read_footer(p, &r);
}

enum status parquet_open(struct parquet *p, const char *path)
{
    *p = (struct parquet){.path = heap_strdup(path)};
    enum status st = STATUS_OK;
    TRY_OUT(file_map_open(&p->map, path));
    TRY_OUT(file_map_check_after(&p->map, parquet_parse(p, p->map.data, p->map.size)));
out:
    if (st) parquet_close(p);
    return st;
}

void parquet_close(struct parquet *p)
{
    for (size_t i = 0; i < p->num_groups; i++) free(p->groups[i].chunks);
    free(p->groups);
    free(p->leaves);
    free(p->nodes);
    file_map_close(&p->map);
    free(p->path);
    *p = (struct parquet){0};
}

/* Finds the leaves at `path` below a node, and returns their number; *leaf is the first.  The path
 * may omit inner nodes of a list. */
static size_t find_below(const struct parquet *p, size_t node, const char *path, size_t *leaf)
{
    const struct parquet_node *n = &p->nodes[node];
    const char *rest;
    size_t only = node + 1, found = 0;
    if (n->leaf != SIZE_MAX) {
        *leaf = n->leaf;
        return !path[0];
    }
    for (size_t child = node + 1; child < n->end; child = p->nodes[child].end) {
        const struct parquet_node *c = &p->nodes[child];
        size_t other, *to = found ? &other : leaf;
        if (column_path_match(path, c->name, c->name_len, &rest))
            found += find_below(p, child, rest, to);
    }
    bool is_list = node && (n->is_list || n->repetition == PARQUET_REPEATED);
    if (found || !is_list || only >= n->end || p->nodes[only].end != n->end) return found;
    return find_below(p, only, path, leaf);
}

static void add_node_path(const struct parquet *p, size_t node, struct text *out)
{
    if (p->nodes[node].parent) {
        add_node_path(p, p->nodes[node].parent, out);
        text_adds(out, ".");
    }
    text_add(out, p->nodes[node].name, p->nodes[node].name_len);
}

void parquet_list_columns(const struct parquet *p, struct text *out)
{
    enum { MAX_BYTES = 1000 };
    text_clear(out);
    for (size_t i = 0; i < p->num_leaves && out->len < MAX_BYTES; i++) {
        if (i) text_adds(out, ", ");
        add_node_path(p, p->leaves[i].node, out);
    }
    if (out->len > MAX_BYTES) out->data[out->len = MAX_BYTES] = 0;
}

enum status parquet_find(const struct parquet *p, const char *column, size_t *leaf)
{
    struct text names = {0};
    size_t found = column[0] ? find_below(p, 0, column, leaf) : 0;
    if (found == 1) return STATUS_OK;
    parquet_list_columns(p, &names);
    enum status st =
        FAILURE(CONFIG, "%s: %s \"%s\"; the columns are: %s", p->path,
                found ? "more than one column has the name" : "no column", column, names.data);
    text_release(&names);
    return st;
}
