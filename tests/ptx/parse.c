/* parse.c -- the text of a kernel to instructions. */
// SPDX-License-Identifier: Apache-2.0
#include "ptx/parse.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct registers { /* %r<47>: %r0 to %r46; or one by name */
    const char *name;
    size_t length;
    int count, bytes, slot; /* bytes 0: predicates */
};

struct label {
    const char *name;
    size_t length;
    int at;
};

enum { MAX_REGISTERS = 64, MAX_WORDS = 128 };

struct parser {
    struct ptx_module *module;
    struct ptx_kernel *kernel;
    struct registers registers[MAX_REGISTERS];
    int num_registers;
    struct symbol *symbols;
    struct label *labels, *targets; /* of branches, by instruction */
    int num_labels, num_targets, room_labels, room_targets, room_code, room_constants,
        room_parameters;
    struct word words[MAX_WORDS]; /* of a statement */
    int num_words;
    const char *statement;
    bool failed;
};

static void reject(struct parser *p, const char *why)
{
    if (p->failed) return;
    p->failed = true;
    fprintf(stderr, "ptx: kernel %.*s: %s: %.*s\n", (int)p->kernel->name_length, p->kernel->name,
            why, (int)strcspn(p->statement, ";\n"), p->statement);
}

/* --- operands --- */

static int add_slot(struct parser *p, int bytes)
{
    int at = p->kernel->register_bytes;
    p->kernel->register_bytes += (bytes ? bytes * LANES : 64);
    return at;
}

static struct operand constant(struct parser *p, int bytes, uint64_t value, bool is_dynamic)
{
    struct ptx_kernel *k = p->kernel;
    struct operand o = {-1, (uint8_t)bytes};
    for (int n = 0; n < k->num_constants; n++) {
        const struct constant *c = &k->constants[n];
        if (c->bytes == bytes && c->value == value && c->is_dynamic == is_dynamic) o.slot = c->slot;
    }
    if (o.slot >= 0) return o;
    GROW(k->constants, k->num_constants, p->room_constants);
    o.slot = add_slot(p, bytes);
    k->constants[k->num_constants++] = (struct constant){o.slot, o.bytes, is_dynamic, value};
    return o;
}

static bool find_register(const struct parser *p, struct word w, struct operand *out)
{
    for (int n = 0; n < p->num_registers; n++) {
        const struct registers *r = &p->registers[n];
        if (w.length < r->length || memcmp(w.at, r->name, r->length)) continue;
        int index = 0;
        if (r->count) {
            if (w.length == r->length || !isdigit((unsigned char)w.at[r->length])) continue;
            index = atoi(w.at + r->length);
            if (index >= r->count) continue;
        } else if (w.length != r->length)
            continue;
        int stride = r->bytes ? r->bytes * LANES : 64;
        *out = (struct operand){r->slot + index * stride, (uint8_t)r->bytes};
        return true;
    }
    return false;
}

static bool find_special(struct word w, struct operand *out)
{
    static const char *const names[] = {"%tid.x",   "%tid.y",    "%tid.z",    "%ntid.x",
                                        "%ntid.y",  "%ntid.z",   "%ctaid.x",  "%ctaid.y",
                                        "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z"};
    for (int n = 0; n < NUM_SPECIAL; n++)
        if (word_is(w, names[n])) {
            *out = (struct operand){n * 4 * LANES, 4};
            return true;
        }
    return false;
}

static bool symbol_value(struct parser *p, struct word w, int64_t *value)
{
    struct symbol *s = symbol_find(p->symbols, w);
    if (!s) s = symbol_find(p->module->globals, w);
    if (!s) return false;
    struct ptx_kernel *k = p->kernel;
    if (s->kind == DYNAMIC_SYMBOL) {
        *value = -1; /* behind the static variables */
        return true;
    }
    if (s->kind == SHARED_SYMBOL && symbol_find(p->symbols, w) == NULL) {
        struct symbol own = *s;
        own.value = -1;
        s = symbol_add(&p->symbols, own);
    }
    if (s->value < 0) {
        size_t *used = s->kind == SHARED_SYMBOL ? &k->static_shared : &k->local_bytes;
        s->value = (int64_t)((*used + s->align - 1) / s->align * s->align);
        *used = (size_t)s->value + s->bytes;
    }
    *value = s->value;
    return true;
}

/* A register, a special register, a symbol or a number. */
static struct operand operand_of(struct parser *p, struct word w, int bytes)
{
    struct operand o = {-1, 0};
    int64_t value = 0;
    if (word_is(w, "_")) return o;
    if (find_register(p, w, &o) || find_special(w, &o)) return o;
    if (isdigit((unsigned char)*w.at) || *w.at == '-') {
        uint64_t bits;
        if (w.length > 2 && (w.at[1] == 'f' || w.at[1] == 'd' || w.at[1] == 'F'))
            bits = strtoull(w.at + 2, NULL, 16);
        else
            bits = *w.at == '-' ? (uint64_t)strtoll(w.at, NULL, 0) : strtoull(w.at, NULL, 0);
        if (!bytes)
            bits = bits ? UINT32_MAX : 0;
        else if (bytes < 8)
            bits &= ~(uint64_t)0 >> (64 - 8 * bytes);
        return constant(p, bytes, bits, false);
    }
    if (symbol_value(p, w, &value)) {
        bool is_dynamic = value < 0;
        return constant(p, bytes, is_dynamic ? 0 : (uint64_t)value, is_dynamic);
    }
    reject(p, "unknown operand");
    return o;
}

/* The words of an operand up to a comma on the outermost level. */
static int operand_end(const struct parser *p, int from)
{
    int depth = 0;
    for (; from < p->num_words; from++) {
        struct word w = p->words[from];
        if (word_is(w, "{") || word_is(w, "[")) depth++;
        if (word_is(w, "}") || word_is(w, "]")) depth--;
        if (!depth && word_is(w, ",")) break;
    }
    return from;
}

static void add_out(struct parser *p, struct instruction *i, struct word w)
{
    if (i->num_out == 4) {
        reject(p, "too many results");
        return;
    }
    struct operand o = {-1, 0};
    if (word_is(w, "_"))
        o = (struct operand){add_slot(p, 8), 8}; /* never read */
    else if (!find_register(p, w, &o))
        reject(p, "unknown result");
    i->out[i->num_out++] = o;
}

/* The low bytes of a register, as cvt takes them from a wider one than its type. */
static struct operand narrow(struct parser *p, struct operand wide, int bytes)
{
    struct ptx_kernel *k = p->kernel;
    struct instruction i = {.execute = mov_vector,
                            .guard = -1,
                            .num_out = 1,
                            .num_in = 1,
                            .bytes = (uint8_t)bytes,
                            .out = {{add_slot(p, bytes), (uint8_t)bytes}},
                            .in = {wide},
                            .target = -1,
                            .text = p->statement};
    GROW(k->code, k->num_instructions, p->room_code);
    k->code[k->num_instructions++] = i;
    return i.out[0];
}

/* `size` as in an operation's sizes; 0 or a: of any size, a constant of `bytes`. */
static void add_in(struct parser *p, struct instruction *i, struct word w, char size, int bytes)
{
    bool is_any = !size || size == 'a';
    if (!is_any) bytes = size == 'p' ? 0 : size - '0';
    if (i->num_in == MAX_OPERANDS) {
        reject(p, "too many operands");
        return;
    }
    struct operand o = operand_of(p, w, bytes);
    if (o.slot < 0) reject(p, "unknown operand");
    if (!is_any && bytes && o.bytes > bytes) o = narrow(p, o, bytes);
    if (!is_any && o.bytes != bytes) reject(p, "an operand of another size");
    i->in[i->num_in++] = o;
}

static void add_address(struct parser *p, struct instruction *i, int from, int end)
{
    add_in(p, i, p->words[from], 'a', 8);
    if (from + 1 < end && word_is(p->words[from + 1], "+")) {
        if (i->offset) reject(p, "two offsets");
        i->offset = strtoll(p->words[from + 2].at, NULL, 0);
    } else if (from + 1 < end && *p->words[from + 1].at == '-') {
        i->offset = strtoll(p->words[from + 1].at, NULL, 0);
    }
}

/* --- statements --- */

/* "ld.global.nc.v4.f32": sets bytes and sign; returns the operation of the space. */
static const struct operation *find_access(struct word m, struct instruction *i)
{
    char space[32] = "";
    bool is_load = m.at[0] == 'l';
    const char *s = m.at, *end = m.at + m.length;
    const char *last = end;
    while (last > s && last[-1] != '.') last--;
    int bytes = type_bytes(last, (size_t)(end - last));
    if (bytes <= 0) return NULL;
    i->bytes = (uint8_t)bytes;
    i->is_signed = *last == 's';
    static const char *const spaces[] = {"global", "shared", "local", "param"};
    for (int n = 0; n < 4; n++) {
        size_t length = strlen(spaces[n]);
        if (m.length > 3 + length && !memcmp(s + 3, spaces[n], length) && s[3 + length] == '.')
            snprintf(space, sizeof space, "%s.%s", is_load ? "ld" : "st", spaces[n]);
    }
    return *space ? operation_find(space, strlen(space)) : NULL;
}

static const struct operation *find_operation(struct parser *p, struct word m,
                                              struct instruction *i)
{
    if (m.length > 3 && (!memcmp(m.at, "ld.", 3) || !memcmp(m.at, "st.", 3)))
        return find_access(m, i);
    int elements = 0;
    bool is_inside = false;
    for (int n = 0; n < p->num_words; n++) {
        is_inside = (is_inside || word_is(p->words[n], "{")) && !word_is(p->words[n], "}");
        elements += is_inside && word_has_letter(p->words[n]);
    }
    if (!elements || m.length < 5 || memcmp(m.at, "mov.", 4)) return operation_find(m.at, m.length);
    i->bytes = (uint8_t)(type_bytes(m.at + 4, m.length - 4) / elements);
    return operation_find("mov.vector", 10);
}

/* From the word behind the mnemonic on. */
static void parse_operands(struct parser *p, struct instruction *i, const struct operation *o,
                           int from, bool has_result)
{
    const char *sizes = o->sizes;
    int bytes = i->bytes ? i->bytes : 4;
    for (int n = 0; from < p->num_words; n++) {
        int end = operand_end(p, from);
        struct word first = p->words[from];
        if (n == 0 && has_result) {
            for (int k = from; k < end; k++)
                if (word_has_letter(p->words[k])) add_out(p, i, p->words[k]);
        } else if (word_is(first, "[")) {
            add_address(p, i, from + 1, end - 1);
            sizes += *sizes != 0;
        } else if (word_is(first, "{")) {
            for (int k = from + 1; k < end; k++)
                if (word_has_letter(p->words[k])) {
                    add_in(p, i, p->words[k], *sizes, bytes);
                    sizes += *sizes != 0;
                }
        } else {
            add_in(p, i, first, *sizes, bytes);
            sizes += *sizes != 0;
        }
        from = end + 1;
    }
    if (o->result >= 0 && (i->num_out != 1 || i->out[0].bytes != o->result))
        reject(p, "a result of another size");
    if (o->control == BARRIER && i->num_in > 1) reject(p, "a barrier of some threads");
}

static void parse_instruction(struct parser *p)
{
    struct ptx_kernel *k = p->kernel;
    struct instruction i = {.guard = -1, .text = p->statement, .target = -1};
    int at = 0;
    if (word_is(p->words[0], "@")) {
        at = 1;
        if (word_is(p->words[at], "!")) i.is_guard_negated = true, at++;
        struct operand o;
        if (!find_register(p, p->words[at++], &o) || o.bytes) {
            reject(p, "unknown predicate");
            return;
        }
        i.guard = o.slot;
    }
    struct word m = p->words[at];
    const struct operation *o = find_operation(p, m, &i);
    if (!o) {
        reject(p, "this instruction is not implemented");
        return;
    }
    i.execute = o->execute;
    i.control = o->control;
    if (o->control == BRANCH) {
        GROW(p->targets, p->num_targets, p->room_targets);
        p->targets[p->num_targets++] =
            (struct label){p->words[at + 1].at, p->words[at + 1].length, k->num_instructions};
    } else if (o->control != RETURN) {
        bool has_result =
            strncmp(o->name, "st_", 3) && strncmp(o->name, "cp_", 3) && strncmp(o->name, "bar_", 4);
        parse_operands(p, &i, o, at + 1, has_result);
    }
    GROW(k->code, k->num_instructions, p->room_code);
    k->code[k->num_instructions++] = i;
}

static void parse_registers(struct parser *p)
{
    int bytes = type_bytes(p->words[1].at + 1, p->words[1].length - 1);
    if (bytes < 0) reject(p, "unknown type");
    for (int n = 2; n < p->num_words; n++) {
        if (word_is(p->words[n], ",")) continue;
        if (p->num_registers == MAX_REGISTERS) {
            reject(p, "too many declarations");
            return;
        }
        struct registers r = {p->words[n].at, p->words[n].length, 0, bytes, 0};
        if (n + 1 < p->num_words && word_is(p->words[n + 1], "<")) {
            r.count = atoi(p->words[n + 2].at);
            n += 3;
        }
        r.slot = p->kernel->register_bytes;
        for (int c = 0; c < (r.count ? r.count : 1); c++) add_slot(p, bytes);
        p->registers[p->num_registers++] = r;
    }
}

static void parse_statement(struct parser *p)
{
    struct word first = p->words[0];
    struct symbol s = {.value = -1};
    if (word_is(first, ".reg")) {
        parse_registers(p);
    } else if (word_is(first, ".shared") || word_is(first, ".local")) {
        s.kind = word_is(first, ".shared") ? SHARED_SYMBOL : LOCAL_SYMBOL;
        symbol_parse(first.at + first.length, &s);
        symbol_add(&p->symbols, s);
    } else if (!word_is(first, ".pragma")) {
        parse_instruction(p);
    }
}

static const char *parse_parameters(struct parser *p, const char *s)
{
    struct ptx_kernel *k = p->kernel;
    struct word w;
    s = word_next(s, &w);
    if (!word_is(w, "(")) return w.at;
    for (;;) {
        s = word_next(s, &w);
        if (word_is(w, ")")) return s;
        if (word_is(w, ",")) continue;
        struct symbol symbol = {.kind = PARAMETER_SYMBOL};
        s = symbol_parse(s, &symbol);
        k->parameter_bytes = (k->parameter_bytes + symbol.align - 1) / symbol.align * symbol.align;
        symbol.value = (int64_t)k->parameter_bytes;
        GROW(k->parameters, k->num_parameters, p->room_parameters);
        k->parameters[k->num_parameters].offset = k->parameter_bytes;
        k->parameters[k->num_parameters++].bytes = symbol.bytes;
        k->parameter_bytes += symbol.bytes;
        symbol_add(&p->symbols, symbol);
    }
}

static void resolve(struct parser *p)
{
    struct ptx_kernel *k = p->kernel;
    for (int n = 0; n < p->num_targets; n++) {
        struct label *t = &p->targets[n];
        for (int l = 0; l < p->num_labels; l++)
            if (p->labels[l].length == t->length && !memcmp(p->labels[l].name, t->name, t->length))
                k->code[t->at].target = p->labels[l].at;
        p->statement = t->name;
        if (k->code[t->at].target < 0) reject(p, "unknown label");
    }
    k->static_shared = (k->static_shared + 15) / 16 * 16;
    for (int n = 0; n < k->num_constants; n++)
        if (k->constants[n].is_dynamic) k->constants[n].value = k->static_shared;
    k->local_bytes = (k->local_bytes + 15) / 16 * 16;
}

bool ptx_parse(struct ptx_module *m, struct ptx_kernel *k)
{
    if (k->is_parsed) return true;
    struct parser p = {.module = m, .kernel = k, .statement = k->text};
    k->register_bytes = NUM_SPECIAL * 4 * LANES;
    const char *s = parse_parameters(&p, k->text);
    struct word w;
    for (;;) { /* .maxntid 512, 1, 1 .minnctapersm 2 */
        s = word_next(s, &w);
        if (word_is(w, "{")) break;
        if (word_is(w, ".maxntid")) k->max_threads = (unsigned)atoi(w.at + w.length + 1);
    }
    while (s < k->end && !p.failed) {
        s = word_next(s, &w);
        if (w.at >= k->end) break;
        if (word_is(w, "{") || word_is(w, "}") || word_is(w, ";")) continue; /* scopes */
        p.statement = w.at;
        p.num_words = 0;
        bool is_label = false;
        while (!word_is(w, ";") && *w.at && !p.failed) {
            if (word_is(w, ":") && p.num_words == 1) {
                is_label = true;
                break;
            }
            if (p.num_words == MAX_WORDS) reject(&p, "too many words");
            if (p.num_words && word_is(p.words[0], ".pragma")) {
                s = strchr(s, ';');
            } else
                p.words[p.num_words++] = w;
            s = word_next(s, &w);
        }
        if (is_label) {
            GROW(p.labels, p.num_labels, p.room_labels);
            p.labels[p.num_labels++] =
                (struct label){p.words[0].at, p.words[0].length, k->num_instructions};
        } else if (p.num_words)
            parse_statement(&p);
    }
    if (!p.failed) resolve(&p);
    free(p.labels);
    free(p.targets);
    while (p.symbols) {
        struct symbol *next = p.symbols->next;
        free(p.symbols);
        p.symbols = next;
    }
    return k->is_parsed = !p.failed;
}
