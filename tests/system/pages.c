// SPDX-License-Identifier: Apache-2.0
#include "system/pages.h"

#include "base/text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void add_item(struct page *p, enum item_kind kind, int line, const char *text, size_t len)
{
    p->items = heap_grow(p->items, p->count + 1, sizeof *p->items);
    p->items[p->count++] = (struct page_item){kind, line, heap_string(text, len)};
}

/* Adds the code spans and links of a line; of a table row from its second cell on. */
static void read_prose(struct page *p, int line, const char *at, const char *end)
{
    if (*at == '|') {
        const char *cell = memchr(at + 1, '|', (size_t)(end - at - 1));
        while (cell && cell[-1] == '\\') cell = memchr(cell + 1, '|', (size_t)(end - cell - 1));
        at = cell ? cell : end;
    }
    while (at < end) {
        const char *open = at;
        bool span = *open == '`', link = !strncmp(open, "](", 2);
        if (link) open++;
        const char *close =
            span || link ? memchr(open + 1, span ? '`' : ')', (size_t)(end - open - 1)) : NULL;
        if (close)
            add_item(p, span ? ITEM_SPAN : ITEM_LINK, line, open + 1, (size_t)(close - open - 1));
        at = close ? close + 1 : at + 1;
    }
}

/* Adds a shell command, unless the line is blank or a comment; a backslash at the end continues it.
 */
static const char *read_command(struct page *p, int *line, const char *at, const char *end)
{
    int first = *line;
    const char *begin = at + strspn(at, " ");
    while (end > at && end[-1] == '\\' && *end && strchr(end + 1, '\n'))
        end = strchr(end + 1, '\n'), ++*line;
    if (begin < end && *begin != '#')
        add_item(p, ITEM_COMMAND, first, begin, (size_t)(end - begin));
    return end;
}

void page_read(struct page *p, const char *markdown)
{
    const char *fence = NULL, *block = NULL, *end;
    int line = 1;
    *p = (struct page){0};
    for (const char *at = markdown; (end = strchr(at, '\n')); at = end + 1, line++) {
        if (!strncmp(at, "```", 3)) {
            if (fence && !strncmp(fence, "toml\n", 5))
                add_item(p, ITEM_TOML, line, block, (size_t)(at - block));
            fence = fence ? NULL : at + 3;
            block = end + 1;
        } else if (!fence) {
            read_prose(p, line, at, end);
        } else if (!strncmp(fence, "sh\n", 3)) {
            end = read_command(p, &line, at, end);
        } else if (!strncmp(fence, "console\n", 8) && !strncmp(at, "$ ", 2)) {
            add_item(p, ITEM_SHOWN, line, at + 2, (size_t)(end - at - 2));
        }
    }
}

void page_release(struct page *p)
{
    for (size_t i = 0; i < p->count; i++) free(p->items[i].text);
    free(p->items);
}
