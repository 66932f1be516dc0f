// SPDX-License-Identifier: Apache-2.0
#include "app/node.h"

#include <stdio.h>
#include <string.h>

/* The start of a file whose size is not known beforehand, as those of /proc. */
static void read_start(const char *path, struct text *out)
{
    char bytes[8192];
    FILE *f = fopen(path, "re");
    text_clear(out);
    text_adds(out, "");
    if (!f) return;
    text_add(out, bytes, fread(bytes, 1, sizeof bytes, f));
    fclose(f);
}

void node_line(const char *path, struct text *line)
{
    read_start(path, line);
    line->len = strcspn(line->data, "\n");
    line->data[line->len] = 0;
}

void node_value(const char *text, const char *name, struct text *value)
{
    size_t len = strlen(name);
    text_clear(value);
    text_adds(value, "");
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *at = line + len;
        if (strncmp(line, name, len) != 0) continue;
        at += strspn(at, " \t");
        if (*at != ':') continue;
        at += 1 + strspn(at + 1, " \t");
        size_t size = strcspn(at, "\n");
        while (size && (at[size - 1] == ' ' || at[size - 1] == '\t')) size--;
        text_add(value, at, size);
        return;
    }
}

void node_processor(struct text *name)
{
    struct text info = {0};
    read_start("/proc/cpuinfo", &info);
    node_value(info.data, "model name", name);
    if (!name->len) node_value(info.data, "CPU part", name); /* ARM's */
    text_release(&info);
}
