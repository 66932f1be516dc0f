/* archive.h -- an archive of torch.save around bytes that are to be its pickle: its checksums no
 * fuzzer would find. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/zip.h"

#include <string.h>

/* Numbers in data/0; in data/1 are half as many bytes, in data/2 half of those.  A pickle's bytes
 * at most, and all of the archive's. */
enum { ARCHIVE_NUMBERS = 64, ARCHIVE_PICKLE = 2048, ARCHIVE_BYTES = 2876 };

/* One with a pickle of ARCHIVE_PICKLE zeros, and where its pickle and directory are. */
struct archive_image {
    struct text bytes;
    size_t pickle, directory;
};

static inline void archive_add(struct zip_writer *w, struct text *archive, const char *name,
                               const void *bytes, size_t len)
{
    struct text head = {0};
    zip_add(w, name, len, zip_crc(0, bytes, len), &head);
    text_add(archive, head.data, head.len);
    text_add(archive, bytes, len);
    text_release(&head);
}

static inline void archive_draw(struct archive_image *image)
{
    static const unsigned char nothing[ARCHIVE_PICKLE];
    unsigned char numbers[ARCHIVE_NUMBERS];
    struct zip_writer w = {0};
    struct text tail = {0};
    for (int i = 0; i < ARCHIVE_NUMBERS; i++) numbers[i] = (unsigned char)(i % 4 < 3 ? i : 63);
    archive_add(&w, &image->bytes, "x/data.pkl", nothing, sizeof nothing);
    image->pickle = image->bytes.len - sizeof nothing;
    archive_add(&w, &image->bytes, "x/data/0", numbers, sizeof numbers);
    archive_add(&w, &image->bytes, "x/data/1", numbers, sizeof numbers / 2);
    archive_add(&w, &image->bytes, "x/data/2", numbers, sizeof numbers / 4);
    image->directory = image->bytes.len;
    zip_finish(&w, &tail);
    text_add(&image->bytes, tail.data, tail.len);
    BUG_IF(image->bytes.len != ARCHIVE_BYTES);
    text_release(&tail);
    zip_writer_release(&w);
}

/* Into `archive`, of ARCHIVE_BYTES; a longer pickle is cut. */
static inline void archive_make(unsigned char *archive, const void *pickle, size_t len)
{
    enum { CRC = 16, SIZES = 46 + sizeof "x/data.pkl" - 1 + 4 }; /* in the directory */
    static struct archive_image image;
    if (!image.pickle) archive_draw(&image);
    if (len > ARCHIVE_PICKLE) len = ARCHIVE_PICKLE;
    uint32_t crc = zip_crc(0, pickle, len);
    uint64_t sizes[] = {len, len};
    memcpy(archive, image.bytes.data, ARCHIVE_BYTES);
    memcpy(archive + image.pickle, pickle, len);
    memcpy(archive + image.directory + CRC, &crc, sizeof crc);
    memcpy(archive + image.directory + SIZES, sizes, sizeof sizes);
}
