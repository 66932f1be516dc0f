// SPDX-License-Identifier: Apache-2.0
#include "config/import/interpolate.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 16, MOST_BYTES = 4096, MOST_WORK = 20000 };

struct work {
    const char *name;
    struct yaml_tree *root;
    const struct yaml_tree *at; /* whose text is told in messages */
    int left;
};

static enum status evaluate(struct work *w, const struct yaml_tree *node, const char *text,
                            int depth, struct text *out);

static enum status refuse(const struct work *w, const char *what, const char *why)
{
    FAIL(CONFIG, "%s:%d:%d: ${%.100s}: %s", w->name, w->at->line, w->at->column, what, why);
}

/* The end of what begins behind "${", or NULL. */
static const char *closing(const char *at)
{
    for (int open = 1; *at; at++) {
        if (!strncmp(at, "${", 2))
            open++, at++;
        else if (*at == '}' && !--open)
            return at;
    }
    return NULL;
}

static enum status find(struct work *w, const struct yaml_tree *node, const char *path,
                        const struct yaml_tree **out)
{
    const struct yaml_tree *at = w->root;
    const char *name = path;
    if (*name == '.')
        for (at = node; *name == '.'; name++) {
            at = at->parent;
            if (!at) return refuse(w, path, "there is nothing above");
        }
    while (at) {
        size_t len = strcspn(name, ".");
        char *key = heap_string(name, len);
        at = yaml_tree_get(at, key);
        free(key);
        if (!name[len]) break;
        name += len + 1;
    }
    if (!at) return refuse(w, path, "there is no such key");
    if (at->kind != YAML_SCALAR) return refuse(w, path, "it is a list or a mapping, not a value");
    *out = at;
    return STATUS_OK;
}

static enum status multiply(struct work *w, const char *all, const char *arguments,
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
        if (!number || (*end && *end != ',')) return refuse(w, all, "multiply wants whole numbers");
        if (__builtin_mul_overflow(product, factor, &product))
            return refuse(w, all, "the product is too large");
        if (!*end) break;
        at = end + 1;
    }
    text_addf(out, "%lld", (long long)product);
    return STATUS_OK;
}

/* What stands between the braces. */
static enum status expression(struct work *w, const struct yaml_tree *node, const char *inner,
                              int depth, struct text *out)
{
    const char *colon = strchr(inner, ':');
    const struct yaml_tree *named = NULL;
    if (colon && !strncmp(inner, "multiply:", 9)) return multiply(w, inner, colon + 1, out);
    if (colon && !strncmp(inner, "oc.env:", 7))
        return refuse(w, inner, "the environment is not read: write the value");
    if (colon) return refuse(w, inner, "of functions only multiply is known");
    TRY(find(w, node, inner, &named));
    return evaluate(w, named, named->text, depth + 1, out);
}

static enum status evaluate(struct work *w, const struct yaml_tree *node, const char *text,
                            int depth, struct text *out)
{
    if (depth > MOST_DEPTH || !w->left--)
        return refuse(w, text, "it leads to itself, or through too many others");
    for (const char *at = text; *at;) {
        const char *begin = strstr(at, "${"), *end = begin ? closing(begin + 2) : NULL;
        if (!begin) begin = at + strlen(at);
        text_add(out, at, (size_t)(begin - at));
        if (out->len > MOST_BYTES) return refuse(w, text, "the value is too long");
        if (!*begin) break;
        if (!end) return refuse(w, begin + 2, "the closing brace is missing");
        char *raw = heap_string(begin + 2, (size_t)(end - begin - 2));
        struct text inner = {0};
        text_adds(&inner, "");
        enum status st = evaluate(w, node, raw, depth + 1, &inner);
        if (!st) st = expression(w, node, inner.data, depth, out);
        text_release(&inner);
        free(raw);
        TRY(st);
        at = end + 1;
    }
    return STATUS_OK;
}

static enum status walk(struct work *w, struct yaml_tree *v)
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
    for (struct yaml_tree *child = v->first; child; child = child->next) TRY(walk(w, child));
    return STATUS_OK;
}

enum status interpolate(struct yaml_tree *root, const char *name)
{
    struct work w = {.name = name, .root = root, .at = root, .left = MOST_WORK};
    return walk(&w, root);
}
