// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle.h"

#include "base/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256 };

static const struct {
    const char *module, *name;
} classes[PICKLE_CLASS_COUNT] = {
#define X(id, module, name) [PICKLE_##id] = {module, name},
    PICKLE_CLASSES(X)
#undef X
};

/* The machine: a stack with marks in it, and what was put aside to be used again. */
struct machine {
    struct pickle *pickle;
    struct reader r;
    const unsigned char *begin; /* of the opcode under way */
    const unsigned char *first;
    const struct pickle_value **stack, **memo;
    size_t depth, stack_room, num_memo, memo_room, next_memo, opcodes;
    size_t *marks;
    size_t num_marks, marks_room;
};

#define REFUSE(m, ...) return refuse(m, __VA_ARGS__), STATUS_DATA

__attribute__((format(printf, 2, 3), cold)) static void refuse(const struct machine *m,
                                                               const char *fmt, ...)
{
    struct text why = {0};
    char words[400];
    va_list arguments;
    va_start(arguments, fmt);
    vsnprintf(words, sizeof words, fmt, arguments);
    va_end(arguments);
    text_addf(&why, "%s: the pickle, at byte %zu: %s", m->r.name, (size_t)(m->begin - m->first),
              words);
    status_fail(STATUS_DATA, __FILE__, __LINE__, "%s", why.data);
    text_release(&why);
}

static void reserve(void *list, size_t *room, size_t count, size_t each)
{
    void **at = list;
    if (count <= *room) return;
    while (*room < count) *room = *room ? *room * 2 : 4;
    *at = heap_grow(*at, *room, each);
}

static struct pickle_value *make(struct machine *m, enum pickle_kind kind)
{
    struct pickle *p = m->pickle;
    size_t block = p->num_values / BLOCK, at = p->num_values % BLOCK;
    if (!at) {
        p->blocks = heap_grow(p->blocks, block + 1, sizeof *p->blocks);
        p->blocks[block] = heap(BLOCK * sizeof **p->blocks);
    }
    p->num_values++;
    p->blocks[block][at].kind = kind;
    return &p->blocks[block][at];
}

static void push(struct machine *m, const struct pickle_value *v)
{
    reserve(&m->stack, &m->stack_room, m->depth + 1, sizeof(void *));
    m->stack[m->depth++] = v;
}

static struct pickle_value *push_new(struct machine *m, enum pickle_kind kind)
{
    struct pickle_value *v = make(m, kind);
    push(m, v);
    return v;
}

static void add(struct pickle_value *v, const struct pickle_value *item)
{
    reserve(&v->items, &v->room, v->count + 1, sizeof(void *));
    v->items[v->count++] = item;
}

/* At least so many values above the last mark. */
static enum status need(const struct machine *m, size_t count)
{
    size_t floor = m->num_marks ? m->marks[m->num_marks - 1] : 0;
    if (m->depth - floor < count) REFUSE(m, "too few values on the stack");
    return STATUS_OK;
}

/* The values above the last mark leave the stack and are *items, until the next push. */
static enum status pop_mark(struct machine *m, const struct pickle_value ***items, size_t *count)
{
    if (!m->num_marks) REFUSE(m, "no mark on the stack");
    size_t at = m->marks[--m->num_marks];
    *items = m->stack + at, *count = m->depth - at;
    m->depth = at;
    return STATUS_OK;
}

/* What a container on top of the stack gets; values are the machine's own, to be written. */
static enum status extend(struct machine *m, enum pickle_kind kind,
                          const struct pickle_value **items, size_t count)
{
    TRY(need(m, 1));
    struct pickle_value *to = (struct pickle_value *)(uintptr_t)m->stack[m->depth - 1];
    if (to->kind != kind) REFUSE(m, "items for what takes none of them");
    if (kind == PICKLE_IS_DICT && count % 2) REFUSE(m, "a key without a value");
    for (size_t i = 0; i < count; i++) add(to, items[i]);
    return STATUS_OK;
}

static enum status extend_marked(struct machine *m, enum pickle_kind kind)
{
    const struct pickle_value **items;
    size_t count;
    TRY(pop_mark(m, &items, &count));
    TRY(extend(m, kind, items, count));
    return STATUS_OK;
}

static enum status extend_top(struct machine *m, enum pickle_kind kind, size_t count)
{
    TRY(need(m, count + 1));
    m->depth -= count;
    TRY(extend(m, kind, m->stack + m->depth, count));
    return STATUS_OK;
}

static enum status collect(struct machine *m, enum pickle_kind kind, size_t count)
{
    TRY(need(m, count));
    struct pickle_value *v = make(m, kind);
    m->depth -= count;
    for (size_t i = 0; i < count; i++) add(v, m->stack[m->depth + i]);
    push(m, v);
    return STATUS_OK;
}

static enum status collect_marked(struct machine *m, enum pickle_kind kind)
{
    const struct pickle_value **items;
    size_t count;
    TRY(pop_mark(m, &items, &count));
    if (kind == PICKLE_IS_DICT && count % 2) REFUSE(m, "a key without a value");
    struct pickle_value *v = make(m, kind);
    for (size_t i = 0; i < count; i++) add(v, items[i]);
    push(m, v);
    return STATUS_OK;
}

static bool is_below(const char *module, size_t len, const char *root)
{
    size_t n = strlen(root);
    return len >= n && !memcmp(module, root, n) && (len == n || module[n] == '.');
}

static enum status push_class(struct machine *m, const char *module, size_t module_len,
                              const char *name, size_t name_len)
{
    for (int c = 0; c < PICKLE_CLASS_COUNT; c++) {
        if (strlen(classes[c].name) != name_len || memcmp(classes[c].name, name, name_len) ||
            !is_below(module, module_len, classes[c].module))
            continue;
        push_new(m, PICKLE_IS_CLASS)->class = (enum pickle_class)c;
        return STATUS_OK;
    }
    REFUSE(m, "it names %.*s.%.*s, which is not read", (int)(module_len < 150 ? module_len : 150),
           module, (int)(name_len < 150 ? name_len : 150), name);
}

static enum status read_line(struct machine *m, const char **text, size_t *len)
{
    const unsigned char *end = memchr(m->r.at, '\n', reader_left(&m->r));
    if (!end) REFUSE(m, "a line does not end");
    *text = (const char *)m->r.at, *len = (size_t)(end - m->r.at);
    m->r.at = end + 1;
    return STATUS_OK;
}

static enum status run_global(struct machine *m)
{
    const char *module, *name;
    size_t module_len, name_len;
    TRY(read_line(m, &module, &module_len));
    TRY(read_line(m, &name, &name_len));
    TRY(push_class(m, module, module_len, name, name_len));
    return STATUS_OK;
}

static enum status run_stack_global(struct machine *m)
{
    TRY(need(m, 2));
    const struct pickle_value *name = m->stack[m->depth - 1], *module = m->stack[m->depth - 2];
    if (name->kind != PICKLE_IS_TEXT || module->kind != PICKLE_IS_TEXT)
        REFUSE(m, "a class whose name is no text");
    m->depth -= 2;
    TRY(push_class(m, module->text, module->len, name->text, name->len));
    return STATUS_OK;
}

/* A class called with a tuple.  An OrderedDict is a dictionary, a torch.Size is its tuple. */
static enum status run_call(struct machine *m, size_t ignored)
{
    TRY(need(m, 2 + ignored));
    const struct pickle_value *arguments = m->stack[m->depth - 1 - ignored];
    const struct pickle_value *class = m->stack[m->depth - 2 - ignored];
    if (class->kind != PICKLE_IS_CLASS) REFUSE(m, "a call of what is no class");
    if (arguments->kind != PICKLE_IS_TUPLE) REFUSE(m, "a call without a tuple");
    m->depth -= 2 + ignored;
    if (class->class == PICKLE_ORDERED_DICT && arguments->count)
        REFUSE(m, "an OrderedDict that begins with something in it");
    if (class->class == PICKLE_ORDERED_DICT) {
        push_new(m, PICKLE_IS_DICT);
        return STATUS_OK;
    }
    const struct pickle_value *sizes = pickle_item(arguments, 0);
    if (class->class == PICKLE_SIZE && sizes && sizes->kind == PICKLE_IS_TUPLE) {
        push(m, sizes);
        return STATUS_OK;
    }
    struct pickle_value *v = push_new(m, PICKLE_IS_OBJECT);
    v->class = class->class;
    add(v, arguments);
    return STATUS_OK;
}

/* The state of an object.  A dictionary's own attributes mean nothing here. */
static enum status run_build(struct machine *m)
{
    TRY(need(m, 2));
    const struct pickle_value *state = m->stack[--m->depth];
    struct pickle_value *to = (struct pickle_value *)(uintptr_t)m->stack[m->depth - 1];
    if (to->kind == PICKLE_IS_DICT) return STATUS_OK;
    if (to->kind != PICKLE_IS_OBJECT || to->count != 1) REFUSE(m, "a state for what has none");
    add(to, state);
    return STATUS_OK;
}

static enum status run_put(struct machine *m, size_t index)
{
    TRY(need(m, 1));
    if (index > m->opcodes) REFUSE(m, "place %zu of the memo", index);
    reserve(&m->memo, &m->memo_room, index + 1, sizeof(void *));
    for (; m->num_memo <= index; m->num_memo++) m->memo[m->num_memo] = NULL;
    m->memo[index] = m->stack[m->depth - 1];
    m->next_memo++;
    return STATUS_OK;
}

static enum status run_get(struct machine *m, size_t index)
{
    if (index >= m->num_memo || !m->memo[index])
        REFUSE(m, "nothing at place %zu of the memo", index);
    push(m, m->memo[index]);
    return STATUS_OK;
}

static enum status read_size(struct machine *m, int bytes, uint64_t *size)
{
    const unsigned char *at;
    TRY(reader_bytes(&m->r, (size_t)bytes, &at, "a length in the pickle"));
    *size = 0;
    for (int i = 0; i < bytes; i++) *size |= (uint64_t)at[i] << (8 * i);
    return STATUS_OK;
}

static enum status run_text(struct machine *m, int bytes)
{
    uint64_t len;
    const unsigned char *at;
    TRY(read_size(m, bytes, &len));
    TRY(reader_bytes(&m->r, len, &at, "a text in the pickle"));
    struct pickle_value *v = push_new(m, PICKLE_IS_TEXT);
    v->text = (const char *)at, v->len = len;
    return STATUS_OK;
}

/* Little-endian; two's complement if it is `is_signed`. */
static enum status run_integer(struct machine *m, uint64_t bytes, bool is_signed)
{
    const unsigned char *at;
    uint64_t value = 0;
    TRY(reader_bytes(&m->r, bytes, &at, "a number in the pickle"));
    if (bytes > 8) REFUSE(m, "a whole number of %llu bytes", (unsigned long long)bytes);
    if (is_signed && bytes && at[bytes - 1] & 0x80) value = UINT64_MAX;
    for (uint64_t i = 0; i < bytes; i++) {
        value &= ~(UINT64_C(255) << (8 * i));
        value |= (uint64_t)at[i] << (8 * i);
    }
    push_new(m, PICKLE_IS_INT)->integer = (int64_t)value;
    return STATUS_OK;
}

static enum status run_long(struct machine *m, int length_bytes)
{
    uint64_t bytes;
    TRY(read_size(m, length_bytes, &bytes));
    TRY(run_integer(m, bytes, true));
    return STATUS_OK;
}

static enum status run_real(struct machine *m)
{
    const unsigned char *at;
    uint64_t bits = 0;
    TRY(reader_bytes(&m->r, 8, &at, "a number in the pickle"));
    for (int i = 0; i < 8; i++) bits = bits << 8 | at[i];
    memcpy(&push_new(m, PICKLE_IS_REAL)->real, &bits, 8);
    return STATUS_OK;
}

static enum status run_index(struct machine *m, int bytes,
                             enum status (*use)(struct machine *m, size_t index))
{
    uint64_t index;
    TRY(read_size(m, bytes, &index));
    TRY(use(m, index));
    return STATUS_OK;
}

static enum status run_pop(struct machine *m)
{
    TRY(need(m, 1));
    m->depth--;
    return STATUS_OK;
}

static enum status run_duplicate(struct machine *m)
{
    TRY(need(m, 1));
    push(m, m->stack[m->depth - 1]);
    return STATUS_OK;
}

static void run_mark(struct machine *m)
{
    reserve(&m->marks, &m->marks_room, m->num_marks + 1, sizeof *m->marks);
    m->marks[m->num_marks++] = m->depth;
}

static enum status run_persistent(struct machine *m)
{
    TRY(collect(m, PICKLE_IS_PERSISTENT, 1));
    return STATUS_OK;
}

static void push_bool(struct machine *m, bool value)
{
    push_new(m, PICKLE_IS_BOOL)->integer = value;
}

static enum status run_protocol(struct machine *m)
{
    uint64_t protocol;
    TRY(read_size(m, 1, &protocol));
    if (protocol < 2 || protocol > 5) REFUSE(m, "protocol %d", (int)protocol);
    return STATUS_OK;
}

/* Values without anything in them, and containers; *known: it was one of these. */
static enum status run_values(struct machine *m, uint8_t opcode, bool *known)
{
    uint64_t frame;
    *known = true;
    switch (opcode) {
    case 'N': push_new(m, PICKLE_IS_NONE); return STATUS_OK;
    case 0x88: push_bool(m, true); return STATUS_OK;
    case 0x89: push_bool(m, false); return STATUS_OK;
    case ')': push_new(m, PICKLE_IS_TUPLE); return STATUS_OK;
    case ']':
    case 0x8f: push_new(m, PICKLE_IS_LIST); return STATUS_OK;
    case '}': push_new(m, PICKLE_IS_DICT); return STATUS_OK;
    case '(': run_mark(m); return STATUS_OK;
    case 0x95: return read_size(m, 8, &frame);
    case 0x80: return run_protocol(m);
    case '0': return run_pop(m);
    case '2': return run_duplicate(m);
    case 't': return collect_marked(m, PICKLE_IS_TUPLE);
    case 'l':
    case 0x91: return collect_marked(m, PICKLE_IS_LIST);
    case 'd': return collect_marked(m, PICKLE_IS_DICT);
    case 0x85:
    case 0x86:
    case 0x87: return collect(m, PICKLE_IS_TUPLE, opcode - 0x84u);
    case 'a': return extend_top(m, PICKLE_IS_LIST, 1);
    case 's': return extend_top(m, PICKLE_IS_DICT, 2);
    case 'e':
    case 0x90: return extend_marked(m, PICKLE_IS_LIST);
    case 'u': return extend_marked(m, PICKLE_IS_DICT);
    }
    *known = false;
    return STATUS_OK;
}

static enum status run_others(struct machine *m, uint8_t opcode)
{
    switch (opcode) {
    case 'J': return run_integer(m, 4, true);
    case 'K': return run_integer(m, 1, false);
    case 'M': return run_integer(m, 2, false);
    case 0x8a: return run_long(m, 1);
    case 0x8b: return run_long(m, 4);
    case 'G': return run_real(m);
    case 'X':
    case 'B':
    case 'T': return run_text(m, 4);
    case 'U':
    case 'C':
    case 0x8c: return run_text(m, 1);
    case 0x8d:
    case 0x8e: return run_text(m, 8);
    case 'c': return run_global(m);
    case 0x93: return run_stack_global(m);
    case 'R':
    case 0x81: return run_call(m, 0);
    case 0x92: return run_call(m, 1);
    case 'b': return run_build(m);
    case 'Q': return run_persistent(m);
    case 'q': return run_index(m, 1, run_put);
    case 'r': return run_index(m, 4, run_put);
    case 0x94: return run_put(m, m->next_memo);
    case 'h': return run_index(m, 1, run_get);
    case 'j': return run_index(m, 4, run_get);
    }
    REFUSE(m, "the opcode 0x%02x is not read", opcode);
}

static enum status run(struct machine *m)
{
    for (;; m->opcodes++) {
        uint8_t opcode;
        bool known;
        m->begin = m->r.at;
        TRY(reader_u8(&m->r, &opcode, "the pickle's end"));
        if (opcode == '.') break;
        TRY(run_values(m, opcode, &known));
        if (!known) TRY(run_others(m, opcode));
    }
    if (m->depth != 1 || m->num_marks) REFUSE(m, "it leaves %zu values", m->depth);
    m->pickle->root = m->stack[0];
    return STATUS_OK;
}

enum status pickle_parse(struct pickle *p, const unsigned char *bytes, size_t len, const char *name,
                         size_t *used)
{
    *p = (struct pickle){0};
    struct machine m = {.pickle = p, .r = {bytes, bytes + len, name}, .first = bytes};
    reserve(&m.stack, &m.stack_room, 1, sizeof(void *));
    enum status st = run(&m);
    *used = (size_t)(m.r.at - bytes);
    free(m.stack), free(m.memo), free(m.marks);
    return st;
}

void pickle_release(struct pickle *p)
{
    for (size_t i = 0; i < p->num_values; i++) free(p->blocks[i / BLOCK][i % BLOCK].items);
    for (size_t i = 0; i < (p->num_values + BLOCK - 1) / BLOCK; i++) free(p->blocks[i]);
    free(p->blocks);
    *p = (struct pickle){0};
}

bool pickle_is_text(const struct pickle_value *v, const char *text)
{
    return v && v->kind == PICKLE_IS_TEXT && v->len == strlen(text) &&
           !memcmp(v->text, text, v->len);
}

const struct pickle_value *pickle_item(const struct pickle_value *v, size_t i)
{
    bool many = v && (v->kind == PICKLE_IS_TUPLE || v->kind == PICKLE_IS_LIST);
    return many && i < v->count ? v->items[i] : NULL;
}

const struct pickle_value *pickle_get(const struct pickle_value *dict, const char *key)
{
    if (!dict || dict->kind != PICKLE_IS_DICT) return NULL;
    for (size_t i = 0; i < dict->count; i += 2)
        if (pickle_is_text(dict->items[i], key)) return dict->items[i + 1];
    return NULL;
}

const struct pickle_value *pickle_argument(const struct pickle_value *v, enum pickle_class class,
                                           size_t i)
{
    bool same = v && v->kind == PICKLE_IS_OBJECT && v->class == class;
    return same ? pickle_item(v->items[0], i) : NULL;
}

const struct pickle_value *pickle_field(const struct pickle_value *v, enum pickle_class class,
                                        const char *field)
{
    bool same = v && v->kind == PICKLE_IS_OBJECT && v->class == class && v->count > 1;
    return same ? pickle_get(v->items[1], field) : NULL;
}

int pickle_integers(const struct pickle_value *v, int most, int64_t *out)
{
    if (!v || v->kind != PICKLE_IS_TUPLE || v->count > (size_t)most) return -1;
    for (size_t i = 0; i < v->count; i++) {
        if (v->items[i]->kind != PICKLE_IS_INT || v->items[i]->integer < 0) return -1;
        out[i] = v->items[i]->integer;
    }
    return (int)v->count;
}
