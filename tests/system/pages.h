/* pages.h -- the parts of a Markdown page that can be tested: commands, configurations, names.
 *
 * A ```sh block has shell commands.  A ```console block has commands that need a cluster or a
 * network, after "$ ", and their output.  The first cell of a table's row is skipped: it may name
 * an option of another program. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

enum item_kind {
    ITEM_COMMAND, /* of ```sh, lines that end in a backslash joined */
    ITEM_SHOWN,   /* of ```console, without its "$ " */
    ITEM_TOML,    /* a whole ```toml block */
    ITEM_SPAN,    /* `code` within text */
    ITEM_LINK,    /* the target of a [link](target) */
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
