// SPDX-License-Identifier: Apache-2.0
#include "machine/node.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

void node_file(const char *path, struct text *out)
{
    enum { MOST = 1 << 16 };
    char bytes[4096];
    FILE *f = fopen(path, "re");
    text_clear(out);
    text_adds(out, "");
    if (!f) return;
    for (size_t n; out->len < MOST && (n = fread(bytes, 1, sizeof bytes, f)) > 0;)
        text_add(out, bytes, n);
    fclose(f);
}

void node_line(const char *path, struct text *line)
{
    node_file(path, line);
    line->len = strcspn(line->data, "\n");
    line->data[line->len] = 0;
}

int node_of_pci_device(const char *folder, const char *bus_id)
{
    struct text path = {0}, line = {0};
    int node;
    text_addf(&path, "%s/", folder);
    for (const char *c = bus_id; *c; c++) text_addf(&path, "%c", tolower((unsigned char)*c));
    text_adds(&path, "/numa_node");
    node_line(path.data, &line);
    if (!bus_id[0] || sscanf(line.data, "%d", &node) != 1) node = -1;
    text_release(&path), text_release(&line);
    return node;
}

void node_choice(const char *words, struct text *choice)
{
    const char *open = strchr(words, '['), *close = open ? strchr(open, ']') : NULL;
    text_clear(choice);
    text_adds(choice, "");
    if (close) text_add(choice, open + 1, (size_t)(close - open - 1));
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
    node_file("/proc/cpuinfo", &info);
    node_value(info.data, "model name", name);
    if (!name->len) node_value(info.data, "CPU part", name); /* ARM's */
    text_release(&info);
}
