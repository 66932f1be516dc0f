/* pages.h -- what a page of Markdown says that can be tried: commands, configurations, names.
 *
 * A ```sh block is lines for a shell.  A ```console block shows what only a cluster or a network
 * can do: its commands begin with "$ ".  The first cell of a table's row is not read: it has the
 * words of another system. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

enum item_kind {
    ITEM_COMMAND, /* of ```sh, lines that end in a backslash joined */
    ITEM_SHOWN,   /* of ```console, without its "$ " */
    ITEM_TOML,    /* a whole ```toml block */
    ITEM_SPAN,    /* `code` within text */
    ITEM_LINK,    /* where a [link](goes) */
};

struct page {
    struct page_item {
        enum item_kind kind;
        int line;
        char *text;
    } * items;
    size_t count;
};

void page_read(struct page *p, const char *markdown);
void page_release(struct page *p);
