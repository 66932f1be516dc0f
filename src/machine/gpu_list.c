// SPDX-License-Identifier: Apache-2.0
#include "machine/gpu_list.h"

#include <stdlib.h>
#include <string.h>

static enum status malformed(const char *text)
{
    FAIL(CONFIG,
         "device.gpus = \"%s\": expected \"all\", a number of GPUs from 1 to %d, or their indices "
         "as in \"0,2,3\"",
         text, GPU_LIST_MAX);
}

static enum status add(struct gpu_list *list, const char *text, int installed, long index)
{
    if (index < 0 || list->count == GPU_LIST_MAX) return malformed(text);
    if (index >= installed)
        FAIL(CONFIG, "device.gpus = \"%s\": GPU %ld does not exist: this machine has %d, from 0 on",
             text, index, installed);
    for (int i = 0; i < list->count; i++)
        if (list->index[i] == index)
            FAIL(CONFIG, "device.gpus = \"%s\": GPU %ld is listed twice", text, index);
    list->index[list->count++] = (int)index;
    return STATUS_OK;
}

static void add_first(struct gpu_list *list, int count)
{
    while (list->count < count) list->index[list->count] = list->count, list->count++;
}

enum status gpu_list_read(const char *text, int installed, struct gpu_list *out)
{
    char *end;
    *out = (struct gpu_list){0};
    if (installed < 1) FAIL(DEVICE, "device.gpus = \"%s\": no GPU found", text);
    if (!*text || !strcmp(text, "all")) {
        add_first(out, installed < GPU_LIST_MAX ? installed : GPU_LIST_MAX);
        return STATUS_OK;
    }
    if (!strchr(text, ',')) {
        long count = strtol(text, &end, 10);
        if (end == text || *end || count < 1 || count > GPU_LIST_MAX) return malformed(text);
        if (count > installed)
            FAIL(CONFIG, "device.gpus = \"%s\": this machine has %d GPU%s", text, installed,
                 installed == 1 ? "" : "s");
        add_first(out, (int)count);
        return STATUS_OK;
    }
    for (const char *at = text;; at = end + 1) {
        long index = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',')) return malformed(text);
        TRY(add(out, text, installed, index));
        if (!*end) return STATUS_OK;
    }
}
