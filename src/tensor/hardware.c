// SPDX-License-Identifier: Apache-2.0
#include "tensor/hardware.h"

#include <ctype.h>
#include <string.h>

static const struct hardware rows[] = {
#define X(name, text, ...) {#name, text, __VA_ARGS__},
    HARDWARE_LIST(X)
#undef X
};

static const struct variant {
    const char *pattern;
    struct hardware hardware;
} variants[] = {
#define X(contains, word, bf16, f32, ranks, links)                                                 \
    {contains,                                                                                     \
     {.name = word,                                                                                \
      .text = "a device",                                                                          \
      .bf16_flops = bf16,                                                                          \
      .f32_flops = f32,                                                                            \
      .float8 = 2,                                                                                 \
      .node_ranks = ranks,                                                                         \
      .node_bandwidth = links,                                                                     \
      .network_bandwidth = 50e9,                                                                   \
      .latency_s = 5e-6,                                                                           \
      .vendor = VENDOR_nvidia}},
    HARDWARE_VARIANTS(X)
#undef X
};

const struct hardware *hardware_row(enum hardware_row row) { return &rows[row]; }

/* An "RTX A1000" is not an A100.  An "A100X" is one with a network adapter, and a "GH200 480GB"
 * counts as an H200, as in torchtitan. */
static bool has_name(const char *device, const char *name)
{
    for (const char *at = device; (at = strcasestr(at, name)); at++)
        if (!isdigit((unsigned char)at[strlen(name)])) return true;
    return false;
}

const struct hardware *hardware_find(const char *device)
{
    if (strstr(device, " MIG "))
        return NULL; /* "NVIDIA H100 80GB HBM3 MIG 1g.10gb": a part of it */
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        if (has_name(device, variants[i].pattern)) return &variants[i].hardware;
    for (size_t i = 1; i < sizeof rows / sizeof *rows; i++)
        if (has_name(device, rows[i].name)) return &rows[i];
    return NULL;
}
