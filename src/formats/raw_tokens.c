// SPDX-License-Identifier: Apache-2.0
#include "formats/raw_tokens.h"

#include "base/heap.h"
#include "base/reader.h"

enum { HEADER_BYTES = 1024, SAMPLE = 1 << 16, MIN_SAMPLE = 64 };

/* llm.c's kinds of files. */
static const struct raw_kind {
    uint32_t magic, version;
    int item_bytes;
} kinds[] = {{20240520, 1, 2}, /* GPT-2 */ {20240801, 7, 4} /* Llama 3 */};

static enum status set_array(struct npy *n, const unsigned char *data, int item_bytes,
                             uint64_t count)
{
    n->data = data;
    n->num_axes = 1;
    n->item_bytes = item_bytes;
    n->rows = 1, n->columns = count;
    return STATUS_OK;
}

static enum status parse_header(struct npy *n, const struct raw_kind *k, struct reader r)
{
    uint32_t magic, version, count;
    TRY(reader_u32(&r, &magic, "the magic"));
    TRY(reader_u32(&r, &version, "the version"));
    TRY(reader_u32(&r, &count, "the number of tokens"));
    const unsigned char *rest;
    if (version != k->version)
        FAIL(UNSUPPORTED, "%s: version %u of llm.c's token files is not supported: expected %u",
             n->path, version, k->version);
    TRY(reader_bytes(&r, HEADER_BYTES - 12, &rest, "the header"));
    if (reader_left(&r) != (uint64_t)count * (uint64_t)k->item_bytes)
        FAIL(DATA, "%s: the header counts %u tokens of %d bytes, but %llu bytes follow", n->path,
             count, k->item_bytes, (unsigned long long)reader_left(&r));
    return set_array(n, r.at, k->item_bytes, count);
}

/* Whether every second 16-bit number is at most 15, as the upper halves of 32-bit IDs are. */
static bool looks_like_32_bits(const unsigned char *bytes, uint64_t size)
{
    if (size % 4 || size < 4 * MIN_SAMPLE) return false;
    for (uint64_t at = 0; at < size && at < SAMPLE; at += 4)
        if (bytes[at + 2] > 15 || bytes[at + 3]) return false;
    return true;
}

enum status raw_tokens_parse(struct npy *n, const unsigned char *bytes, uint64_t size)
{
    struct reader r = {bytes, bytes + size, n->path};
    uint32_t magic = 0;
    if (size >= 4)
        TRY(reader_u32(&(struct reader){bytes, bytes + 4, n->path}, &magic, "the magic"));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (size >= HEADER_BYTES && magic == kinds[i].magic) return parse_header(n, &kinds[i], r);
    if (size % 2)
        FAIL(DATA,
             "%s: without an .idx beside it, a .bin file is an array of 16-bit token IDs, but this "
             "one has %llu bytes",
             n->path, (unsigned long long)size);
    if (looks_like_32_bits(bytes, size))
        FAIL(
            DATA,
            "%s: without an .idx beside it, a .bin file is an array of 16-bit token IDs, but these "
            "look like 32-bit ones; write them as .npy with numpy.save",
            n->path);
    return set_array(n, bytes, 2, size / 2);
}

enum status raw_tokens_open(struct npy *n, const char *path)
{
    *n = (struct npy){.path = heap_strdup(path)};
    enum status st = STATUS_OK;
    TRY_OUT(file_map_open(&n->map, path));
    TRY_OUT(file_map_check_after(&n->map, raw_tokens_parse(n, n->map.data, n->map.size)));
out:
    if (st) npy_close(n);
    return st;
}
