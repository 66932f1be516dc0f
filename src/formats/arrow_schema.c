// SPDX-License-Identifier: Apache-2.0
#include "formats/arrow_schema.h"

#include "formats/column_path.h"

#include <string.h>

enum { MOST_FIELDS = 1 << 16, ENOUGH = 1000 /* bytes of names in a message */ };

/* Buffers of an array of each type, and one more, so that 0 is a type whose layout is not known
 * here. */
static const unsigned char layout[ARROW_TYPES] = {[ARROW_NULL] = 1,
                                                  [ARROW_INT] = 3,
                                                  [3] = 3,
                                                  [ARROW_BINARY] = 4,
                                                  [ARROW_UTF8] = 4,
                                                  [6] = 3,
                                                  [7] = 3,
                                                  [8] = 3,
                                                  [9] = 3,
                                                  [10] = 3,
                                                  [11] = 3,
                                                  [ARROW_LIST] = 3,
                                                  [ARROW_STRUCT] = 2,
                                                  [15] = 3,
                                                  [ARROW_FIXED_LIST] = 2,
                                                  [ARROW_MAP] = 3,
                                                  [18] = 3,
                                                  [ARROW_LARGE_BINARY] = 4,
                                                  [ARROW_LARGE_UTF8] = 4,
                                                  [ARROW_LARGE_LIST] = 3,
                                                  [22] = 1,
                                                  [ARROW_BINARY_VIEW] = 3,
                                                  [ARROW_UTF8_VIEW] = 3,
                                                  [ARROW_LIST_VIEW] = 4,
                                                  [ARROW_LARGE_LIST_VIEW] = 4};

unsigned arrow_schema_buffers(int type) { return layout[type] - 1u; }

/* The schema's fields on the way to the column. */
struct schema {
    struct flat *flat;
    size_t nodes, buffers, views, fields; /* counted so far */
    struct arrow_level levels[ARROW_DEEP];
    struct text path;    /* of the field under way */
    struct arrow *found; /* gets the levels */
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

static enum status read_int(struct schema *s, uint64_t type, struct arrow_level *l)
{
    uint64_t bits = flat_scalar(s->flat, type, 0, 4);
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
        FAIL(DATA, "%s: whole numbers of %llu bits", s->found->path, (unsigned long long)bits);
    l->bits = (int)bits;
    l->is_signed = flat_scalar(s->flat, type, 1, 1) != 0;
    return STATUS_OK;
}

/* What a field's values are, whether they are in a dictionary or not. */
static enum status read_type(struct schema *s, uint64_t field, struct arrow_level *l)
{
    struct flat *f = s->flat;
    uint64_t type = flat_pointed(f, field, 3);
    l->type = (int)flat_scalar(f, field, 2, 1);
    if (l->type == ARROW_INT && type) TRY(read_int(s, type, l));
    if (l->type == ARROW_FIXED_LIST && type) l->list_size = flat_scalar(f, type, 0, 4);
    if (f->bad) FAIL(DATA, "%s: the schema is damaged", s->found->path);
    if (l->type >= ARROW_TYPES || !layout[l->type])
        FAIL(UNSUPPORTED, "%s: a field of type %d (unions are not read)", s->found->path, l->type);
    return STATUS_OK;
}

static void take_column(struct schema *s, int depth, uint64_t dictionary,
                        const struct arrow_level *values)
{
    struct arrow *a = s->found;
    if (a->num_levels) return;
    memcpy(a->levels, s->levels, sizeof a->levels);
    a->num_levels = depth;
    a->values = *values;
    a->is_coded = dictionary != 0;
    if (dictionary) a->dictionary = (int64_t)flat_scalar(s->flat, dictionary, 0, 8);
    for (int i = 0; i < depth; i++) a->num_lists += is_list(s->levels[i].type);
    a->is_text = is_text(values->type);
    a->is_integer = values->type == ARROW_INT && values->bits;
    a->is_u8 = a->is_integer && values->bits == 8 && !values->is_signed;
}

static enum status read_level(struct schema *s, uint64_t dictionary, struct arrow_level *l)
{
    if (dictionary) { /* places of 32 bits, if it does not say otherwise */
        uint64_t index = flat_pointed(s->flat, dictionary, 1);
        *l = (struct arrow_level){.type = ARROW_INT, .bits = 32, .is_signed = true};
        if (index) TRY(read_int(s, index, l));
    }
    if (s->flat->bad) FAIL(DATA, "%s: the schema is damaged", s->found->path);
    if (++s->fields > MOST_FIELDS)
        FAIL(DATA, "%s: more than %d fields", s->found->path, MOST_FIELDS);
    l->node = s->nodes++, l->buffer = s->buffers, l->views = s->views;
    s->buffers += arrow_schema_buffers(l->type);
    s->views += arrow_is_view(l->type);
    return STATUS_OK;
}

/* Is the field of the name that `rest` begins with?  Then *after is what follows it. */
static bool is_named(struct flat *f, uint64_t field, const char *rest, const char **after)
{
    uint64_t at, bytes = flat_items(f, field, 0, 1, &at);
    size_t len = column_path_name(rest, after);
    return len && bytes == len && !memcmp(f->data + at, rest, len);
}

/* Its name, or of what a list holds only that it does. */
static void enter(struct schema *s, uint64_t field, bool of_list)
{
    uint64_t at, len = flat_items(s->flat, field, 0, 1, &at);
    if (of_list)
        text_adds(&s->path, "[]");
    else
        text_addf(&s->path, "%s%.*s", s->path.len ? "." : "", (int)(len < 100 ? len : 100),
                  len ? (const char *)s->flat->data + at : "");
}

static void tell_column(struct schema *s)
{
    struct text *there = &s->found->columns;
    if (there->len < ENOUGH)
        text_addf(there, "%s%s", there->len ? ", " : "", s->path.data ? s->path.data : "");
}

static enum status read_field(struct schema *s, uint64_t field, int depth, const char *rest);

static enum status read_fields_below(struct schema *s, uint64_t field, int depth, bool of_list,
                                     const char *rest)
{
    struct flat *f = s->flat;
    uint64_t first, count = flat_items(f, field, 5, 4, &first);
    if (of_list && count != 1)
        FAIL(DATA, "%s: a list of %llu kinds", s->found->path, (unsigned long long)count);
    for (uint64_t i = 0; i < count && !f->bad; i++) {
        uint64_t at = first + 4 * i, child = at + flat_number(f, at, 4);
        size_t len = s->path.len;
        const char *after, *below = NULL;
        if (rest && is_named(f, child, rest, &after))
            below = after;
        else if (of_list)
            below = rest;
        enter(s, child, of_list);
        TRY(read_field(s, child, depth + 1, below));
        if (s->path.data) s->path.data[s->path.len = len] = 0;
    }
    return STATUS_OK;
}

/* A field and those below it.  `rest`: the names still to be met; NULL: it is not on the way. */
static enum status read_field(struct schema *s, uint64_t field, int depth, const char *rest)
{
    if (depth == ARROW_DEEP) FAIL(UNSUPPORTED, "%s: fields nested too deep", s->found->path);
    struct arrow_level *level = &s->levels[depth], values = {0};
    uint64_t dictionary = flat_pointed(s->flat, field, 4);
    TRY(read_type(s, field, &values));
    *level = values;
    TRY(read_level(s, dictionary, level));
    bool of_list = is_list(level->type), below = of_list || level->type == ARROW_STRUCT;
    if (below) return read_fields_below(s, field, depth, of_list, rest);
    tell_column(s);
    if (rest && !rest[0]) take_column(s, depth + 1, dictionary, &values);
    /* runs have columns of their own below them, which are none of the file's */
    return dictionary ? STATUS_OK : read_fields_below(s, field, depth, false, NULL);
}

enum status arrow_schema_read(struct arrow *a, struct flat *f, uint64_t table, const char *column)
{
    struct schema s = {.flat = f, .found = a};
    uint64_t first, count = flat_items(f, table, 1, 4, &first);
    if (flat_scalar(f, table, 0, 2)) FAIL(UNSUPPORTED, "%s: big-endian numbers", a->path);
    enum status st = STATUS_OK;
    for (uint64_t i = 0; i < count && !f->bad; i++) {
        uint64_t at = first + 4 * i, field = at + flat_number(f, at, 4);
        const char *after = NULL;
        bool named = is_named(f, field, column, &after);
        text_clear(&s.path);
        enter(&s, field, false);
        TRY_OUT(read_field(&s, field, 0, named ? after : NULL));
    }
    if (f->bad) FAIL_OUT(DATA, "%s: the schema is damaged", a->path);
    if (!a->num_levels)
        FAIL_OUT(CONFIG, "%s: there is no column \"%s\"; there are %s", a->path, column,
                 a->columns.data ? a->columns.data : "none");
out:
    text_release(&s.path);
    return st;
}
