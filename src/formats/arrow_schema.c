// SPDX-License-Identifier: Apache-2.0
#include "formats/arrow_schema.h"

#include "formats/column_path.h"

#include <string.h>

enum { MAX_FIELDS = 1 << 16, MAX_NAMES_BYTES = 1000 /* bytes of column names in a message */ };

/* A type's name in messages, and the number of buffers of its arrays. */
static const struct {
    const char *name;
    unsigned buffers;
} types[ARROW_TYPES] = {[ARROW_NULL] = {"nulls", 0},
                        [ARROW_INT] = {"integers", 2},
                        [3] = {"floating-point numbers", 2},
                        [ARROW_BINARY] = {"binary", 3},
                        [ARROW_UTF8] = {"text", 3},
                        [6] = {"booleans", 2},
                        [7] = {"decimals", 2},
                        [8] = {"dates", 2},
                        [9] = {"times", 2},
                        [10] = {"timestamps", 2},
                        [11] = {"intervals", 2},
                        [ARROW_LIST] = {"lists", 2},
                        [ARROW_STRUCT] = {"structs", 1},
                        [ARROW_UNION] = {"unions", 1}, /* and the offsets of dense ones */
                        [15] = {"fixed-size binary", 2},
                        [ARROW_FIXED_LIST] = {"fixed-size lists", 1},
                        [ARROW_MAP] = {"maps", 2},
                        [18] = {"durations", 2},
                        [ARROW_LARGE_BINARY] = {"binary", 3},
                        [ARROW_LARGE_UTF8] = {"text", 3},
                        [ARROW_LARGE_LIST] = {"lists", 2},
                        [ARROW_RUN_END_ENCODED] = {"run-end encoded values", 0},
                        [ARROW_BINARY_VIEW] = {"binary", 2},
                        [ARROW_UTF8_VIEW] = {"text", 2},
                        [ARROW_LIST_VIEW] = {"lists", 3},
                        [ARROW_LARGE_LIST_VIEW] = {"lists", 3}};

const char *arrow_schema_type_name(int type) { return types[type].name; }

/* The state of a depth-first walk over the schema's fields. */
struct arrow_schema {
    struct flatbuffer *flat;
    size_t nodes, buffers, unions, variadic, fields; /* visited so far */
    struct arrow_level levels[ARROW_MAX_DEPTH];
    struct text path;    /* of the current field */
    struct arrow *arrow; /* receives the column */
    size_t columns;      /* that have its name */
};

static bool is_list(int type)
{
    return type == ARROW_LIST || type == ARROW_LARGE_LIST || type == ARROW_MAP ||
           type == ARROW_FIXED_LIST || type == ARROW_LIST_VIEW || type == ARROW_LARGE_LIST_VIEW;
}

static bool is_text(int type)
{
    return type == ARROW_BINARY || type == ARROW_UTF8 || type == ARROW_LARGE_BINARY ||
           type == ARROW_LARGE_UTF8 || arrow_is_view(type);
}

static enum status read_int(struct arrow_schema *s, uint64_t type, struct arrow_level *l)
{
    uint64_t bits = flatbuffer_scalar(s->flat, type, 0, 4);
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
        FAIL(DATA, "%s: integer type with %llu bits", s->arrow->path, (unsigned long long)bits);
    l->bits = (int)bits;
    l->is_signed = flatbuffer_scalar(s->flat, type, 1, 1) != 0;
    return STATUS_OK;
}

/* The logical type of a field, whether it is dictionary-encoded or not. */
static enum status read_field_type(struct arrow_schema *s, uint64_t field, struct arrow_level *l)
{
    enum { DENSE = 1 };
    struct flatbuffer *f = s->flat;
    uint64_t type = flatbuffer_target(f, field, 3);
    l->type = (int)flatbuffer_scalar(f, field, 2, 1);
    if (l->type == ARROW_INT && type) TRY(read_int(s, type, l));
    if (l->type == ARROW_FIXED_LIST && type) l->list_size = flatbuffer_scalar(f, type, 0, 4);
    if (f->bad) FAIL(DATA, "%s: corrupt schema", s->arrow->path);
    if (l->type >= ARROW_TYPES || !types[l->type].name)
        FAIL(UNSUPPORTED, "%s: field type %d is not supported", s->arrow->path, l->type);
    l->num_buffers = types[l->type].buffers;
    if (l->type == ARROW_UNION && type) l->num_buffers += flatbuffer_scalar(f, type, 0, 2) == DENSE;
    return STATUS_OK;
}

static void set_column(struct arrow_schema *s, int depth, uint64_t dictionary,
                       const struct arrow_level *values)
{
    struct arrow *a = s->arrow;
    if (s->columns++) return;
    memcpy(a->levels, s->levels, sizeof a->levels);
    a->num_levels = depth;
    a->dictionary_values = *values;
    a->is_dictionary_encoded = dictionary != 0;
    if (dictionary) a->dictionary_id = (int64_t)flatbuffer_scalar(s->flat, dictionary, 0, 8);
    for (int i = 0; i < depth; i++) a->num_lists += is_list(s->levels[i].type);
    a->is_text = is_text(values->type);
    a->is_integer = values->type == ARROW_INT && values->bits;
    a->is_u8 = a->is_integer && values->bits == 8 && !values->is_signed;
}

static enum status read_level(struct arrow_schema *s, uint64_t dictionary, struct arrow_level *l)
{
    if (dictionary) { /* the index type defaults to int32 */
        uint64_t index = flatbuffer_target(s->flat, dictionary, 1);
        *l = (struct arrow_level){.type = ARROW_INT,
                                  .bits = 32,
                                  .is_signed = true,
                                  .num_buffers = types[ARROW_INT].buffers};
        if (index) TRY(read_int(s, index, l));
    }
    if (s->flat->bad) FAIL(DATA, "%s: corrupt schema", s->arrow->path);
    if (++s->fields > MAX_FIELDS) FAIL(DATA, "%s: more than %d fields", s->arrow->path, MAX_FIELDS);
    l->node = s->nodes++, l->buffer = s->buffers;
    l->unions = s->unions, l->variadic = s->variadic;
    s->buffers += l->num_buffers;
    s->unions += l->type == ARROW_UNION || l->type == ARROW_RUN_END_ENCODED;
    s->variadic += arrow_is_view(l->type);
    return STATUS_OK;
}

/* Whether the field has the first name of the path `rest`.  Sets *after to what follows it. */
static bool is_named(struct flatbuffer *f, uint64_t field, const char *rest, const char **after)
{
    uint64_t at, bytes = flatbuffer_vector(f, field, 0, 1, &at);
    return !f->bad && column_path_match(rest, (const char *)f->data + at, bytes, after);
}

/* Appends the field's name to the path; the item of a list has none but []. */
static void push_name(struct arrow_schema *s, uint64_t field, bool of_list)
{
    uint64_t at, len = flatbuffer_vector(s->flat, field, 0, 1, &at);
    if (of_list)
        text_adds(&s->path, "[]");
    else
        text_addf(&s->path, "%s%.*s", s->path.len ? "." : "", (int)(len < 100 ? len : 100),
                  len ? (const char *)s->flat->data + at : "");
}

static void add_column_name(struct arrow_schema *s)
{
    struct text *names = &s->arrow->columns;
    if (names->len < MAX_NAMES_BYTES)
        text_addf(names, "%s%s", names->len ? ", " : "", s->path.data ? s->path.data : "");
}

static enum status read_field(struct arrow_schema *s, uint64_t field, int depth, const char *rest);

static enum status read_children(struct arrow_schema *s, uint64_t field, int depth, bool of_list,
                                 const char *rest)
{
    struct flatbuffer *f = s->flat;
    uint64_t first, count = flatbuffer_vector(f, field, 5, 4, &first);
    if (of_list && count != 1)
        FAIL(DATA, "%s: list field with %llu children: expected 1", s->arrow->path,
             (unsigned long long)count);
    for (uint64_t i = 0; i < count && !f->bad; i++) {
        uint64_t at = first + 4 * i, child = at + flatbuffer_read(f, at, 4);
        size_t len = s->path.len;
        const char *after, *below = NULL;
        if (rest && is_named(f, child, rest, &after))
            below = after;
        else if (of_list)
            below = rest;
        push_name(s, child, of_list);
        TRY(read_field(s, child, depth + 1, below));
        if (s->path.data) s->path.data[s->path.len = len] = 0;
    }
    return STATUS_OK;
}

/* Reads a field and its descendants.  `rest`: the remaining names of the column's path; NULL: the
 * field is not on that path. */
static enum status read_field(struct arrow_schema *s, uint64_t field, int depth, const char *rest)
{
    if (depth == ARROW_MAX_DEPTH)
        FAIL(UNSUPPORTED, "%s: fields are nested too deeply", s->arrow->path);
    struct arrow_level *level = &s->levels[depth], values = {0};
    uint64_t dictionary = flatbuffer_target(s->flat, field, 4);
    TRY(read_field_type(s, field, &values));
    *level = values;
    TRY(read_level(s, dictionary, level));
    bool of_list = is_list(level->type), below = of_list || level->type == ARROW_STRUCT;
    if (below) return read_children(s, field, depth, of_list, rest);
    add_column_name(s);
    if (rest && !rest[0]) set_column(s, depth + 1, dictionary, &values);
    if (dictionary) return STATUS_OK;
    /* children of other types, such as unions, are not columns of the file */
    struct text *names = &s->arrow->columns;
    size_t len = names->len;
    TRY(read_children(s, field, depth, false, NULL));
    if (names->data) names->data[names->len = len] = 0;
    return STATUS_OK;
}

enum status arrow_schema_read(struct arrow *a, struct flatbuffer *f, uint64_t table,
                              const char *column)
{
    struct arrow_schema s = {.flat = f, .arrow = a};
    uint64_t first, count = flatbuffer_vector(f, table, 1, 4, &first);
    if (flatbuffer_scalar(f, table, 0, 2))
        FAIL(UNSUPPORTED, "%s: big-endian data is not supported", a->path);
    enum status st = STATUS_OK;
    for (uint64_t i = 0; i < count && !f->bad; i++) {
        uint64_t at = first + 4 * i, field = at + flatbuffer_read(f, at, 4);
        const char *after = NULL;
        bool named = is_named(f, field, column, &after);
        text_clear(&s.path);
        push_name(&s, field, false);
        TRY_OUT(read_field(&s, field, 0, named ? after : NULL));
    }
    if (f->bad) FAIL_OUT(DATA, "%s: corrupt schema", a->path);
    if (s.columns != 1)
        FAIL_OUT(CONFIG, "%s: %s \"%s\"; the columns are: %s", a->path,
                 s.columns ? "more than one column has the name" : "no column", column,
                 a->columns.data ? a->columns.data : "none");
out:
    text_release(&s.path);
    return st;
}
