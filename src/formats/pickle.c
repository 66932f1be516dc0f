// SPDX-License-Identifier: Apache-2.0
#include "formats/pickle.h"

#include "base/file.h"
#include "formats/pickle_opcode.h"

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

const char *pickle_class_name(enum pickle_class c)
{
    return c == PICKLE_UNKNOWN ? "unknown" : classes[c].name;
}

/* The pickle virtual machine: a stack, its marks, and the memo. */
struct unpickler {
    struct pickle *pickle;
    struct reader r;
    const unsigned char *opcode_at; /* the current opcode */
    const unsigned char *start;
    const struct pickle_value **stack, **memo;
    size_t depth, stack_capacity, num_memo, memo_capacity, next_memo, opcodes;
    size_t *marks;
    size_t num_marks, marks_capacity;
    bool any_class;
};

#define REJECT(m, ...) return reject(m, __VA_ARGS__), STATUS_DATA

__attribute__((format(printf, 2, 3), cold)) static void reject(const struct unpickler *m,
                                                               const char *fmt, ...)
{
    struct text why = {0};
    char message[400];
    va_list arguments;
    va_start(arguments, fmt);
    vsnprintf(message, sizeof message, fmt, arguments);
    va_end(arguments);
    text_addf(&why, "%s: pickle, byte %zu: %s", m->r.name, (size_t)(m->opcode_at - m->start),
              message);
    FAILURE(DATA, "%s", why.data);
    text_release(&why);
}

static void reserve(void *list, size_t *capacity, size_t count, size_t each)
{
    void **at = list;
    if (count <= *capacity) return;
    while (*capacity < count) *capacity = *capacity ? *capacity * 2 : 4;
    *at = heap_grow(*at, *capacity, each);
}

static struct pickle_value *new_value(struct unpickler *m, enum pickle_kind kind)
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

static void push(struct unpickler *m, const struct pickle_value *v)
{
    reserve(&m->stack, &m->stack_capacity, m->depth + 1, sizeof(void *));
    m->stack[m->depth++] = v;
}

static struct pickle_value *push_new(struct unpickler *m, enum pickle_kind kind)
{
    struct pickle_value *v = new_value(m, kind);
    push(m, v);
    return v;
}

static void append_item(struct pickle_value *v, const struct pickle_value *item)
{
    reserve(&v->items, &v->capacity, v->count + 1, sizeof(void *));
    v->items[v->count++] = item;
}

/* Checks that there are `count` values above the last mark. */
static enum status check_depth(const struct unpickler *m, size_t count)
{
    size_t floor = m->num_marks ? m->marks[m->num_marks - 1] : 0;
    if (m->depth - floor < count) REJECT(m, "stack underflow");
    return STATUS_OK;
}

/* Pops the values above the last mark; *items is valid until the next push. */
static enum status pop_mark(struct unpickler *m, const struct pickle_value ***items, size_t *count)
{
    if (!m->num_marks) REJECT(m, "no mark on the stack");
    size_t at = m->marks[--m->num_marks];
    *items = m->stack + at, *count = m->depth - at;
    m->depth = at;
    return STATUS_OK;
}

/* Appends items to the container on top of the stack.  Casting const away is
 * safe, as the unpickler owns all values. */
static enum status extend_container(struct unpickler *m, enum pickle_kind kind,
                                    const struct pickle_value **items, size_t count)
{
    TRY(check_depth(m, 1));
    struct pickle_value *target = (struct pickle_value *)(uintptr_t)m->stack[m->depth - 1];
    if (target->kind == PICKLE_IS_OBJECT && target->class == PICKLE_UNKNOWN) return STATUS_OK;
    if (target->kind != kind) REJECT(m, "the target of APPEND or SETITEM is not such a container");
    if (kind == PICKLE_IS_DICT && count % 2) REJECT(m, "key without a value");
    for (size_t i = 0; i < count; i++) append_item(target, items[i]);
    return STATUS_OK;
}

static enum status extend_from_mark(struct unpickler *m, enum pickle_kind kind)
{
    const struct pickle_value **items;
    size_t count;
    TRY(pop_mark(m, &items, &count));
    TRY(extend_container(m, kind, items, count));
    return STATUS_OK;
}

static enum status extend_top(struct unpickler *m, enum pickle_kind kind, size_t count)
{
    TRY(check_depth(m, count + 1));
    m->depth -= count;
    TRY(extend_container(m, kind, m->stack + m->depth, count));
    return STATUS_OK;
}

static enum status collect_top(struct unpickler *m, enum pickle_kind kind, size_t count)
{
    TRY(check_depth(m, count));
    struct pickle_value *v = new_value(m, kind);
    m->depth -= count;
    for (size_t i = 0; i < count; i++) append_item(v, m->stack[m->depth + i]);
    push(m, v);
    return STATUS_OK;
}

static enum status collect_from_mark(struct unpickler *m, enum pickle_kind kind)
{
    const struct pickle_value **items;
    size_t count;
    TRY(pop_mark(m, &items, &count));
    if (kind == PICKLE_IS_DICT && count % 2) REJECT(m, "key without a value");
    struct pickle_value *v = new_value(m, kind);
    for (size_t i = 0; i < count; i++) append_item(v, items[i]);
    push(m, v);
    return STATUS_OK;
}

static bool is_submodule(const char *module, size_t len, const char *root)
{
    size_t n = strlen(root);
    return len >= n && !memcmp(module, root, n) && (len == n || module[n] == '.');
}

static enum status push_class(struct unpickler *m, const char *module, size_t module_len,
                              const char *name, size_t name_len)
{
    for (int c = 0; c < PICKLE_CLASS_COUNT; c++) {
        if (strlen(classes[c].name) != name_len || memcmp(classes[c].name, name, name_len) ||
            !is_submodule(module, module_len, classes[c].module))
            continue;
        push_new(m, PICKLE_IS_CLASS)->class = (enum pickle_class)c;
        return STATUS_OK;
    }
    if (m->any_class) {
        push_new(m, PICKLE_IS_CLASS)->class = PICKLE_UNKNOWN;
        return STATUS_OK;
    }
    REJECT(m, "global %.*s.%.*s is not allowed", (int)(module_len < 150 ? module_len : 150), module,
           (int)(name_len < 150 ? name_len : 150), name);
}

static enum status read_line(struct unpickler *m, const char **text, size_t *len)
{
    const unsigned char *end = memchr(m->r.at, '\n', reader_left(&m->r));
    if (!end) REJECT(m, "unterminated line");
    *text = (const char *)m->r.at, *len = (size_t)(end - m->r.at);
    m->r.at = end + 1;
    return STATUS_OK;
}

static enum status run_global(struct unpickler *m)
{
    const char *module, *name;
    size_t module_len, name_len;
    TRY(read_line(m, &module, &module_len));
    TRY(read_line(m, &name, &name_len));
    TRY(push_class(m, module, module_len, name, name_len));
    return STATUS_OK;
}

static enum status run_stack_global(struct unpickler *m)
{
    TRY(check_depth(m, 2));
    const struct pickle_value *name = m->stack[m->depth - 1], *module = m->stack[m->depth - 2];
    if (name->kind != PICKLE_IS_STRING || module->kind != PICKLE_IS_STRING)
        REJECT(m, "STACK_GLOBAL: the name must be a string");
    m->depth -= 2;
    TRY(push_class(m, module->text, module->len, name->text, name->len));
    return STATUS_OK;
}

static void push_object(struct unpickler *m, enum pickle_class class,
                        const struct pickle_value *arguments)
{
    struct pickle_value *v = push_new(m, PICKLE_IS_OBJECT);
    v->class = class;
    append_item(v, arguments);
}

/* REDUCE, NEWOBJ and NEWOBJ_EX (whose keyword arguments are ignored): calls a class with a tuple.
 * An OrderedDict becomes a dict, and a torch.Size its tuple. */
static enum status run_reduce(struct unpickler *m, size_t num_ignored)
{
    TRY(check_depth(m, 2 + num_ignored));
    const struct pickle_value *arguments = m->stack[m->depth - 1 - num_ignored];
    const struct pickle_value *class = m->stack[m->depth - 2 - num_ignored];
    bool is_result = m->any_class && class->kind == PICKLE_IS_OBJECT;
    if (class->kind != PICKLE_IS_CLASS && !is_result)
        REJECT(m, "REDUCE: the callable must be a class");
    if (arguments->kind != PICKLE_IS_TUPLE) REJECT(m, "REDUCE: the arguments must be a tuple");
    m->depth -= 2 + num_ignored;
    if (is_result) {
        push_object(m, PICKLE_UNKNOWN, arguments);
        return STATUS_OK;
    }
    if (class->class == PICKLE_ORDERED_DICT && arguments->count)
        REJECT(m, "OrderedDict with initial items is not supported");
    if (class->class == PICKLE_ORDERED_DICT) {
        push_new(m, PICKLE_IS_DICT);
        return STATUS_OK;
    }
    const struct pickle_value *size_tuple = pickle_item(arguments, 0);
    if (class->class == PICKLE_SIZE && size_tuple && size_tuple->kind == PICKLE_IS_TUPLE) {
        push(m, size_tuple);
        return STATUS_OK;
    }
    push_object(m, class->class, arguments);
    return STATUS_OK;
}

/* BUILD: sets the state of an object.  Attributes of a dict are ignored. */
static enum status run_build(struct unpickler *m)
{
    TRY(check_depth(m, 2));
    const struct pickle_value *state = m->stack[--m->depth];
    struct pickle_value *target = (struct pickle_value *)(uintptr_t)m->stack[m->depth - 1];
    if (target->kind == PICKLE_IS_DICT) return STATUS_OK;
    if (target->kind != PICKLE_IS_OBJECT || target->count != 1)
        REJECT(m, "BUILD: the target must be an object without state");
    append_item(target, state);
    return STATUS_OK;
}

static enum status run_put(struct unpickler *m, size_t index)
{
    TRY(check_depth(m, 1));
    if (index > m->opcodes) REJECT(m, "memo index %zu is out of range", index);
    reserve(&m->memo, &m->memo_capacity, index + 1, sizeof(void *));
    for (; m->num_memo <= index; m->num_memo++) m->memo[m->num_memo] = NULL;
    m->memo[index] = m->stack[m->depth - 1];
    m->next_memo++;
    return STATUS_OK;
}

static enum status run_get(struct unpickler *m, size_t index)
{
    if (index >= m->num_memo || !m->memo[index]) REJECT(m, "memo slot %zu is empty", index);
    push(m, m->memo[index]);
    return STATUS_OK;
}

static enum status read_size(struct unpickler *m, int bytes, uint64_t *size)
{
    const unsigned char *at;
    TRY(reader_bytes(&m->r, (size_t)bytes, &at, "a length in the pickle"));
    *size = 0;
    for (int i = 0; i < bytes; i++) *size |= (uint64_t)at[i] << (8 * i);
    return STATUS_OK;
}

static enum status run_string(struct unpickler *m, int bytes)
{
    uint64_t len;
    const unsigned char *at;
    TRY(read_size(m, bytes, &len));
    TRY(reader_bytes(&m->r, len, &at, "a string in the pickle"));
    struct pickle_value *v = push_new(m, PICKLE_IS_STRING);
    v->text = (const char *)at, v->len = len;
    return STATUS_OK;
}

/* A little-endian integer, in two's complement if `is_signed`. */
static enum status run_int(struct unpickler *m, uint64_t bytes, bool is_signed)
{
    const unsigned char *at;
    uint64_t value = 0;
    TRY(reader_bytes(&m->r, bytes, &at, "a number in the pickle"));
    if (bytes > 8 && m->any_class) {
        push_new(m, PICKLE_IS_NONE);
        return STATUS_OK;
    }
    if (bytes > 8) REJECT(m, "integer of %llu bytes: the limit is 8", (unsigned long long)bytes);
    if (is_signed && bytes && at[bytes - 1] & 0x80) value = UINT64_MAX;
    for (uint64_t i = 0; i < bytes; i++) {
        value &= ~(UINT64_C(255) << (8 * i));
        value |= (uint64_t)at[i] << (8 * i);
    }
    push_new(m, PICKLE_IS_INT)->integer = (int64_t)value;
    return STATUS_OK;
}

static enum status run_long(struct unpickler *m, int length_bytes)
{
    uint64_t bytes;
    TRY(read_size(m, length_bytes, &bytes));
    TRY(run_int(m, bytes, true));
    return STATUS_OK;
}

static enum status run_float(struct unpickler *m)
{
    const unsigned char *at;
    uint64_t bits = 0;
    TRY(reader_bytes(&m->r, 8, &at, "a number in the pickle"));
    for (int i = 0; i < 8; i++) bits = bits << 8 | at[i];
    memcpy(&push_new(m, PICKLE_IS_FLOAT)->real, &bits, 8);
    return STATUS_OK;
}

static enum status run_index(struct unpickler *m, int bytes,
                             enum status (*apply)(struct unpickler *m, size_t index))
{
    uint64_t index;
    TRY(read_size(m, bytes, &index));
    TRY(apply(m, index));
    return STATUS_OK;
}

static enum status run_pop(struct unpickler *m)
{
    TRY(check_depth(m, 1));
    m->depth--;
    return STATUS_OK;
}

static enum status run_dup(struct unpickler *m)
{
    TRY(check_depth(m, 1));
    push(m, m->stack[m->depth - 1]);
    return STATUS_OK;
}

static void run_mark(struct unpickler *m)
{
    reserve(&m->marks, &m->marks_capacity, m->num_marks + 1, sizeof *m->marks);
    m->marks[m->num_marks++] = m->depth;
}

static enum status run_persid(struct unpickler *m)
{
    TRY(collect_top(m, PICKLE_IS_PERSISTENT, 1));
    return STATUS_OK;
}

static void push_bool(struct unpickler *m, bool value)
{
    push_new(m, PICKLE_IS_BOOL)->integer = value;
}

static enum status run_proto(struct unpickler *m)
{
    uint64_t protocol;
    TRY(read_size(m, 1, &protocol));
    if (protocol < 2 || protocol > 5)
        REJECT(m, "protocol %d is not supported: expected 2 to 5", (int)protocol);
    return STATUS_OK;
}

/* Executes constants, containers and stack opcodes; sets *known to false for any other opcode. */
static enum status run_simple_opcode(struct unpickler *m, uint8_t opcode, bool *known)
{
    uint64_t frame;
    *known = true;
    switch (opcode) {
    case PICKLE_OP_NONE: push_new(m, PICKLE_IS_NONE); return STATUS_OK;
    case PICKLE_OP_NEWTRUE: push_bool(m, true); return STATUS_OK;
    case PICKLE_OP_NEWFALSE: push_bool(m, false); return STATUS_OK;
    case PICKLE_OP_EMPTY_TUPLE: push_new(m, PICKLE_IS_TUPLE); return STATUS_OK;
    case PICKLE_OP_EMPTY_LIST:
    case PICKLE_OP_EMPTY_SET: push_new(m, PICKLE_IS_LIST); return STATUS_OK;
    case PICKLE_OP_EMPTY_DICT: push_new(m, PICKLE_IS_DICT); return STATUS_OK;
    case PICKLE_OP_MARK: run_mark(m); return STATUS_OK;
    case PICKLE_OP_FRAME: return read_size(m, 8, &frame);
    case PICKLE_OP_PROTO: return run_proto(m);
    case PICKLE_OP_POP: return run_pop(m);
    case PICKLE_OP_DUP: return run_dup(m);
    case PICKLE_OP_TUPLE: return collect_from_mark(m, PICKLE_IS_TUPLE);
    case PICKLE_OP_LIST:
    case PICKLE_OP_FROZENSET: return collect_from_mark(m, PICKLE_IS_LIST);
    case PICKLE_OP_DICT: return collect_from_mark(m, PICKLE_IS_DICT);
    case PICKLE_OP_TUPLE1:
    case PICKLE_OP_TUPLE2:
    case PICKLE_OP_TUPLE3: return collect_top(m, PICKLE_IS_TUPLE, opcode - PICKLE_OP_TUPLE1 + 1u);
    case PICKLE_OP_APPEND: return extend_top(m, PICKLE_IS_LIST, 1);
    case PICKLE_OP_SETITEM: return extend_top(m, PICKLE_IS_DICT, 2);
    case PICKLE_OP_APPENDS:
    case PICKLE_OP_ADDITEMS: return extend_from_mark(m, PICKLE_IS_LIST);
    case PICKLE_OP_SETITEMS: return extend_from_mark(m, PICKLE_IS_DICT);
    }
    *known = false;
    return STATUS_OK;
}

static enum status run_other_opcode(struct unpickler *m, uint8_t opcode)
{
    switch (opcode) {
    case PICKLE_OP_BININT: return run_int(m, 4, true);
    case PICKLE_OP_BININT1: return run_int(m, 1, false);
    case PICKLE_OP_BININT2: return run_int(m, 2, false);
    case PICKLE_OP_LONG1: return run_long(m, 1);
    case PICKLE_OP_LONG4: return run_long(m, 4);
    case PICKLE_OP_BINFLOAT: return run_float(m);
    case PICKLE_OP_BINUNICODE:
    case PICKLE_OP_BINBYTES:
    case PICKLE_OP_BINSTRING: return run_string(m, 4);
    case PICKLE_OP_SHORT_BINSTRING:
    case PICKLE_OP_SHORT_BINBYTES:
    case PICKLE_OP_SHORT_BINUNICODE: return run_string(m, 1);
    case PICKLE_OP_BINUNICODE8:
    case PICKLE_OP_BINBYTES8: return run_string(m, 8);
    case PICKLE_OP_GLOBAL: return run_global(m);
    case PICKLE_OP_STACK_GLOBAL: return run_stack_global(m);
    case PICKLE_OP_REDUCE:
    case PICKLE_OP_NEWOBJ: return run_reduce(m, 0);
    case PICKLE_OP_NEWOBJ_EX: return run_reduce(m, 1);
    case PICKLE_OP_BUILD: return run_build(m);
    case PICKLE_OP_BINPERSID: return run_persid(m);
    case PICKLE_OP_BINPUT: return run_index(m, 1, run_put);
    case PICKLE_OP_LONG_BINPUT: return run_index(m, 4, run_put);
    case PICKLE_OP_MEMOIZE: return run_put(m, m->next_memo);
    case PICKLE_OP_BINGET: return run_index(m, 1, run_get);
    case PICKLE_OP_LONG_BINGET: return run_index(m, 4, run_get);
    }
    REJECT(m, "opcode 0x%02x is not supported", opcode);
}

static enum status run_opcodes(struct unpickler *m)
{
    for (;; m->opcodes++) {
        uint8_t opcode;
        bool known;
        m->opcode_at = m->r.at;
        TRY(reader_u8(&m->r, &opcode, "the next opcode of the pickle"));
        if (opcode == PICKLE_OP_STOP) break;
        TRY(run_simple_opcode(m, opcode, &known));
        if (!known) TRY(run_other_opcode(m, opcode));
    }
    if (m->depth != 1 || m->num_marks)
        REJECT(m, "STOP with %zu values on the stack: expected 1", m->depth);
    m->pickle->root = m->stack[0];
    return STATUS_OK;
}

static enum status run(struct unpickler *m, size_t *used)
{
    *m->pickle = (struct pickle){0};
    m->start = m->r.at;
    reserve(&m->stack, &m->stack_capacity, 1, sizeof(void *));
    enum status st = run_opcodes(m);
    *used = (size_t)(m->r.at - m->start);
    free(m->stack), free(m->memo), free(m->marks);
    return st;
}

enum status pickle_parse(struct pickle *p, const unsigned char *bytes, size_t len, const char *name,
                         size_t *used)
{
    struct unpickler m = {.pickle = p, .r = {bytes, bytes + len, name}};
    TRY(run(&m, used));
    return STATUS_OK;
}

enum status pickle_parse_any(struct pickle *p, const unsigned char *bytes, size_t len,
                             const char *name, size_t *used)
{
    struct unpickler m = {.pickle = p, .r = {bytes, bytes + len, name}, .any_class = true};
    TRY(run(&m, used));
    return STATUS_OK;
}

void pickle_release(struct pickle *p)
{
    for (size_t i = 0; i < p->num_values; i++) free(p->blocks[i / BLOCK][i % BLOCK].items);
    for (size_t i = 0; i < (p->num_values + BLOCK - 1) / BLOCK; i++) free(p->blocks[i]);
    free(p->blocks);
    *p = (struct pickle){0};
}

bool pickle_is_string(const struct pickle_value *v, const char *text)
{
    return v && v->kind == PICKLE_IS_STRING && v->len == strlen(text) &&
           !memcmp(v->text, text, v->len);
}

const struct pickle_value *pickle_item(const struct pickle_value *v, size_t i)
{
    bool is_sequence = v && (v->kind == PICKLE_IS_TUPLE || v->kind == PICKLE_IS_LIST);
    return is_sequence && i < v->count ? v->items[i] : NULL;
}

const struct pickle_value *pickle_get(const struct pickle_value *dict, const char *key)
{
    if (!dict || dict->kind != PICKLE_IS_DICT) return NULL;
    for (size_t i = 0; i < dict->count; i += 2)
        if (pickle_is_string(dict->items[i], key)) return dict->items[i + 1];
    return NULL;
}

const struct pickle_value *pickle_argument(const struct pickle_value *v, enum pickle_class class,
                                           size_t i)
{
    bool matches = v && v->kind == PICKLE_IS_OBJECT && v->class == class;
    return matches ? pickle_item(v->items[0], i) : NULL;
}

const struct pickle_value *pickle_field(const struct pickle_value *v, enum pickle_class class,
                                        const char *field)
{
    bool matches = v && v->kind == PICKLE_IS_OBJECT && v->class == class && v->count > 1;
    return matches ? pickle_get(v->items[1], field) : NULL;
}

int pickle_int_tuple(const struct pickle_value *v, int max, int64_t *out)
{
    if (!v || v->kind != PICKLE_IS_TUPLE || v->count > (size_t)max) return -1;
    for (size_t i = 0; i < v->count; i++) {
        if (v->items[i]->kind != PICKLE_IS_INT || v->items[i]->integer < 0) return -1;
        out[i] = v->items[i]->integer;
    }
    return (int)v->count;
}
