/* archive.h -- wraps a fuzzer's bytes, as the pickle, in a torch.save archive with valid CRCs,
 * which no fuzzer would guess. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/zip.h"

#include <string.h>

/* Bytes of data/0 (data/1 has half of them, data/2 a quarter), of data/3, which is zeros, of the
 * longest pickle, and of the whole archive. */
enum { ARCHIVE_NUMBERS = 64, ARCHIVE_ZEROS = 2304, ARCHIVE_PICKLE = 2048, ARCHIVE_BYTES = 5374 };

/* A template archive with a pickle of ARCHIVE_PICKLE zeros, and the offsets of its pickle and
 * central directory. */
struct archive_image {
    struct text bytes;
    size_t pickle, directory;
};

static inline void archive_add(struct zip_writer *w, struct text *archive, const char *name,
                               const void *bytes, size_t len)
{
    struct text head = {0};
    zip_writer_add(w, name, len, zip_crc(0, bytes, len), &head);
    text_add(archive, head.data, head.len);
    text_add(archive, bytes, len);
    text_release(&head);
}

static inline void archive_build_image(struct archive_image *image)
{
    static const unsigned char nothing[ARCHIVE_PICKLE], zeros[ARCHIVE_ZEROS];
    unsigned char numbers[ARCHIVE_NUMBERS];
    struct zip_writer w = {0};
    struct text tail = {0};
    for (int i = 0; i < ARCHIVE_NUMBERS; i++) numbers[i] = (unsigned char)(i % 4 < 3 ? i : 63);
    archive_add(&w, &image->bytes, "x/data.pkl", nothing, sizeof nothing);
    image->pickle = image->bytes.len - sizeof nothing;
    archive_add(&w, &image->bytes, "x/data/0", numbers, sizeof numbers);
    archive_add(&w, &image->bytes, "x/data/1", numbers, sizeof numbers / 2);
    archive_add(&w, &image->bytes, "x/data/2", numbers, sizeof numbers / 4);
    archive_add(&w, &image->bytes, "x/data/3", zeros, sizeof zeros);
    image->directory = image->bytes.len;
    zip_writer_finish(&w, &tail);
    text_add(&image->bytes, tail.data, tail.len);
    BUG_IF(image->bytes.len != ARCHIVE_BYTES);
    text_release(&tail);
    zip_writer_release(&w);
}

/* Writes ARCHIVE_BYTES to `archive`; a longer pickle is truncated. */
static inline void archive_make(unsigned char *archive, const void *pickle, size_t len)
{
    enum {
        CRC = 16,
        SIZES = 46 + sizeof "x/data.pkl" - 1 + 4
    }; /* offsets in the central directory */
    static struct archive_image image;
    if (!image.pickle) archive_build_image(&image);
    if (len > ARCHIVE_PICKLE) len = ARCHIVE_PICKLE;
    uint32_t crc = zip_crc(0, pickle, len);
    uint64_t sizes[] = {len, len};
    memcpy(archive, image.bytes.data, ARCHIVE_BYTES);
    memcpy(archive + image.pickle, pickle, len);
    memcpy(archive + image.directory + CRC, &crc, sizeof crc);
    memcpy(archive + image.directory + SIZES, sizes, sizeof sizes);
}
