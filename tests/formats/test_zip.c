// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "formats/zip.h"
#include "test.h"

/* An archive of two entries, "a/one" of 5 bytes and an empty "b". */
static struct text archive(void)
{
    struct zip_writer w = {0};
    struct text all = {0}, part = {0};
    uint64_t head = zip_writer_header_bytes(&w, "a/one");
    zip_writer_add(&w, "a/one", 5, zip_crc(0, "12345", 5), &part);
    CHECK(part.len == head && part.len % ZIP_ALIGN == 0);
    text_add(&all, part.data, part.len);
    text_adds(&all, "12345");
    zip_writer_add(&w, "b", 0, 0, &part);
    text_add(&all, part.data, part.len);
    CHECK(all.len % ZIP_ALIGN == 0);
    zip_writer_finish(&w, &part);
    text_add(&all, part.data, part.len);
    text_release(&part);
    zip_writer_release(&w);
    return all;
}

static enum status parse(struct zip *z, const struct text *t)
{
    return zip_parse(z, (const unsigned char *)t->data, t->len, "x.zip");
}

TEST(a_written_archive_reads_back)
{
    struct text t = archive();
    struct zip z;
    CHECK(zip_crc(0, "123456789", 9) == 0xCBF43926);
    CHECK_STATUS(OK, parse(&z, &t));
    const struct zip_entry *one = zip_find(&z, "a/one", 5), *b = zip_find(&z, "b", 1);
    CHECK(z.count == 2 && one->size == 5 && !memcmp(one->data, "12345", 5) && b->size == 0);
    CHECK(zip_entry_crc_ok(one) && zip_entry_crc_ok(b));
    CHECK(!zip_find(&z, "a", 1) && !zip_find(&z, "a/one2", 6));
    zip_release(&z);
    text_release(&t);
}

TEST(truncated_archives_are_rejected)
{
    struct text t = archive();
    for (size_t len = t.len; len-- > 0;) {
        struct zip z;
        unsigned char *part = heap(len ? len : 1); /* so that ASan detects reads past the end */
        memcpy(part, t.data, len);
        CHECK_STATUS(DATA, zip_parse(&z, part, len, "x.zip"));
        CHECK_MESSAGE("x.zip");
        zip_release(&z);
        free(part);
    }
    text_release(&t);
}

TEST(the_crc_detects_a_changed_byte_of_an_entry)
{
    struct text t = archive();
    struct zip z;
    *strstr(t.data + 64, "12345") = '2';
    CHECK_STATUS(OK, parse(&z, &t));
    CHECK(!zip_entry_crc_ok(zip_find(&z, "a/one", 5)));
    zip_release(&z);
    text_release(&t);
}

TEST(entries_of_corrupt_archives_stay_within_the_archive)
{
    struct text t = archive();
    for (size_t i = 0; i < t.len; i++)
        for (int mask = 1; mask < 256; mask <<= 1) {
            struct zip z;
            t.data[i] = (char)(t.data[i] ^ mask);
            if (!parse(&z, &t))
                for (size_t e = 0; e < z.count; e++) {
                    const unsigned char *begin = (unsigned char *)t.data;
                    CHECK(z.entries[e].data >= begin && z.entries[e].size <= t.len);
                    CHECK(z.entries[e].data + z.entries[e].size <= begin + t.len);
                }
            zip_release(&z);
            t.data[i] = (char)(t.data[i] ^ mask);
        }
    text_release(&t);
}

TEST(duplicate_entry_names_are_rejected)
{
    struct zip_writer w = {0};
    struct text all = {0}, part = {0};
    struct zip z;
    for (int i = 0; i < 2; i++) {
        zip_writer_add(&w, "same", 0, 0, &part);
        text_add(&all, part.data, part.len);
    }
    zip_writer_finish(&w, &part);
    text_add(&all, part.data, part.len);
    CHECK_STATUS(DATA, parse(&z, &all));
    CHECK_MESSAGE("duplicate entry same");
    zip_release(&z);
    text_release(&all), text_release(&part);
    zip_writer_release(&w);
}

TEST(compressed_entries_are_rejected)
{
    struct text t = archive();
    struct zip z;
    for (size_t i = 0; i + 4 < t.len; i++)
        if (!memcmp(t.data + i, "PK\1\2", 4)) t.data[i + 10] = 8;
    CHECK_STATUS(UNSUPPORTED, parse(&z, &t));
    CHECK_MESSAGE("compressed");
    zip_release(&z);
    text_release(&t);
}
