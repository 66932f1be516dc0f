// SPDX-License-Identifier: Apache-2.0
#include "config/refusals.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

void refusals_add(struct refusals *r, const char *key, const char *what)
{
    r->items = heap_grow(r->items, r->count + 1, sizeof *r->items);
    r->items[r->count++] = (struct refused_key){heap_strdup(key), heap_strdup(what)};
}

void refusals_release(struct refusals *r)
{
    for (size_t i = 0; i < r->count; i++) free(r->items[i].key), free(r->items[i].what);
    free(r->items);
    *r = (struct refusals){0};
}

static bool is_repeated(const struct refusals *r, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (!strcmp(r->items[k].key, r->items[i].key)) return true;
    return false;
}

/* Writes the names that accept_loss needs, those it already has first. */
static void write_names(const struct refusals *r, const struct accept_config *a, bool is_toml,
                        struct text *out)
{
    size_t begin = out->len;
    for (size_t i = 0; i < a->accept_loss.count + r->count; i++) {
        bool old = i < a->accept_loss.count;
        size_t k = old ? 0 : i - a->accept_loss.count;
        const char *name = old ? a->accept_loss.items[i] : r->items[k].key;
        if (!old && (option_list_contains(&a->accept_loss, name) || is_repeated(r, k))) continue;
        if (out->len > begin) text_adds(out, is_toml ? ", " : ",");
        if (is_toml)
            option_quote(out, name);
        else
            text_adds(out, name);
    }
}

enum status refusals_check(const struct refusals *r, const struct accept_config *a)
{
    size_t refused = 0;
    struct text message = {0};
    for (size_t i = 0; i < r->count; i++) {
        if (option_list_contains(&a->accept_loss, r->items[i].key))
            log_line(LOG_WARN, "accepted, although the result changes: %s", r->items[i].what);
        else
            refused += !is_repeated(r, i);
    }
    if (!refused) return STATUS_OK;
    text_addf(&message,
              "%zu %s the result and %s not supported. To continue without %s, set\n"
              "  config.accept_loss=",
              refused, refused == 1 ? "setting changes" : "settings change",
              refused == 1 ? "is" : "are", refused == 1 ? "it" : "them");
    write_names(r, a, false, &message);
    text_adds(&message, "\non the command line, or in the configuration\n  [config]\n"
                        "  accept_loss = [");
    write_names(r, a, true, &message);
    text_adds(&message, "]");
    for (size_t i = 0; i < r->count; i++)
        if (!option_list_contains(&a->accept_loss, r->items[i].key) && !is_repeated(r, i))
            text_addf(&message, "\n%s", r->items[i].what);
    FAILURE(CONFIG, "%s", message.data);
    text_release(&message);
    return STATUS_CONFIG;
}
