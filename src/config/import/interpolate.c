// SPDX-License-Identifier: Apache-2.0
#include "config/import/interpolate.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16, MAX_BYTES = 4096, MAX_EXPANSIONS = 20000 };

struct interpolation {
    const char *name;
    struct yaml_tree *root;
    const struct yaml_tree *at; /* the value that is expanded, for messages */
    int expansions_left;
};

static enum status evaluate(struct interpolation *w, const struct yaml_tree *node, const char *text,
                            int depth, struct text *out);

static enum status fail_expression(const struct interpolation *w, const char *what, const char *why)
{
    FAIL(CONFIG, "%s:%d:%d: ${%.100s}: %s", w->name, w->at->line, w->at->column, what, why);
}

/* Returns the brace that closes a "${" whose content starts at `at`, or NULL. */
static const char *closing_brace(const char *at)
{
    for (int open = 1; *at; at++) {
        if (!strncmp(at, "${", 2))
            open++, at++;
        else if (*at == '}' && !--open)
            return at;
    }
    return NULL;
}

static enum status resolve_path(struct interpolation *w, const struct yaml_tree *node,
                                const char *path, const struct yaml_tree **out)
{
    const struct yaml_tree *at = w->root;
    const char *name = path;
    if (*name == '.')
        for (at = node; *name == '.'; name++) {
            at = at->parent;
            if (!at) return fail_expression(w, path, "no such parent mapping");
        }
    while (at) {
        size_t len = strcspn(name, ".");
        char *key = heap_string(name, len);
        at = yaml_tree_get(at, key);
        free(key);
        if (!name[len]) break;
        name += len + 1;
    }
    if (!at) return fail_expression(w, path, "no such key");
    if (at->kind != YAML_SCALAR)
        return fail_expression(w, path, "expected a scalar value, got a list or a mapping");
    *out = at;
    return STATUS_OK;
}

static enum status multiply(struct interpolation *w, const char *all, const char *arguments,
                            struct text *out)
{
    int64_t product = 1;
    const char *at = arguments;
    for (;;) {
        char *end;
        errno = 0;
        int64_t factor = strtoll(at, &end, 10);
        bool number = end != at && !errno;
        while (*end == ' ') end++;
        if (!number || (*end && *end != ','))
            return fail_expression(w, all, "multiply: expected whole numbers");
        if (__builtin_mul_overflow(product, factor, &product))
            return fail_expression(w, all, "the product is too large");
        if (!*end) break;
        at = end + 1;
    }
    text_addf(out, "%lld", (long long)product);
    return STATUS_OK;
}

/* Evaluates the text between the braces. */
static enum status evaluate_expression(struct interpolation *w, const struct yaml_tree *node,
                                       const char *inner, int depth, struct text *out)
{
    const char *colon = strchr(inner, ':');
    const struct yaml_tree *named = NULL;
    if (colon && !strncmp(inner, "multiply:", 9)) return multiply(w, inner, colon + 1, out);
    if (colon && !strncmp(inner, "oc.env:", 7))
        return fail_expression(w, inner,
                               "environment variables are not read; write the value instead");
    if (colon) return fail_expression(w, inner, "unknown resolver; only multiply is supported");
    TRY(resolve_path(w, node, inner, &named));
    return evaluate(w, named, named->text, depth + 1, out);
}

static enum status evaluate(struct interpolation *w, const struct yaml_tree *node, const char *text,
                            int depth, struct text *out)
{
    if (depth > MAX_DEPTH || !w->expansions_left--)
        return fail_expression(w, text, "refers to itself, or to too many other values");
    for (const char *at = text; *at;) {
        const char *begin = strstr(at, "${"), *end = begin ? closing_brace(begin + 2) : NULL;
        if (!begin) begin = at + strlen(at);
        text_add(out, at, (size_t)(begin - at));
        if (out->len > MAX_BYTES) return fail_expression(w, text, "the value is too long");
        if (!*begin) break;
        if (!end) return fail_expression(w, begin + 2, "the closing brace is missing");
        char *raw = heap_string(begin + 2, (size_t)(end - begin - 2));
        struct text inner = {0};
        text_adds(&inner, "");
        enum status st = evaluate(w, node, raw, depth + 1, &inner);
        if (!st) st = evaluate_expression(w, node, inner.data, depth, out);
        text_release(&inner);
        free(raw);
        TRY(st);
        at = end + 1;
    }
    return STATUS_OK;
}

static enum status expand_tree(struct interpolation *w, struct yaml_tree *v)
{
    if (v->kind == YAML_SCALAR && strstr(v->text, "${")) {
        struct text out = {0};
        text_adds(&out, "");
        w->at = v;
        enum status st = evaluate(w, v, v->text, 0, &out);
        if (st) {
            text_release(&out);
            return st;
        }
        free(v->text);
        v->text = out.data;
        v->plain = true;
    }
    for (struct yaml_tree *child = v->first; child; child = child->next) TRY(expand_tree(w, child));
    return STATUS_OK;
}

enum status interpolate(struct yaml_tree *root, const char *name)
{
    struct interpolation w = {
        .name = name, .root = root, .at = root, .expansions_left = MAX_EXPANSIONS};
    return expand_tree(&w, root);
}
