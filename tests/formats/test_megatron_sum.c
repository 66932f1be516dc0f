// SPDX-License-Identifier: Apache-2.0
#include "formats/megatron_sum.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/rng.h"
#include "data/rig.h"
#include "formats/megatron.h"

enum { DOCUMENTS = 40 };

/* A pair of token files with PREFIX.sum. */
static const char *summed_pair(const char *folder)
{
    struct megatron_sum sums[2] = {{0}};
    int lengths[DOCUMENTS];
    const char *prefix = test_path(folder, "p");
    for (int d = 0; d < DOCUMENTS; d++) lengths[d] = d * 11 % 9;
    rig_tokens(folder, "p", lengths, DOCUMENTS, 0);
    for (int i = 0; i < 2; i++) {
        struct text t = {0};
        CHECK_STATUS(OK, file_read(test_path(folder, i ? "p.idx" : "p.bin"), 1 << 20, &t));
        for (size_t at = 0, n = 1; at < t.len; at += n, n = 3 * n + 1) {
            if (n > t.len - at) n = t.len - at;
            megatron_sum_add(&sums[i], t.data + at, n);
        }
        text_release(&t);
    }
    CHECK_STATUS(OK, megatron_sum_write(prefix, &sums[0], &sums[1]));
    megatron_sum_release(&sums[0]), megatron_sum_release(&sums[1]);
    return prefix;
}

TEST(sums_have_a_checksum_per_chunk)
{
    struct megatron_sum whole = {0}, pieces = {0};
    size_t len = MEGATRON_SUM_CHUNK + 5;
    char *bytes = heap(len);
    for (size_t i = 0; i < len; i += 1000) bytes[i] = (char)(i / 1000);
    megatron_sum_add(&whole, bytes, len);
    for (size_t at = 0, n = 7; at < len; at += n) {
        n = len - at < 999999 ? len - at : 999999;
        megatron_sum_add(&pieces, bytes + at, n);
    }
    CHECK(whole.count == 2 && pieces.count == 2 && whole.bytes == len && pieces.bytes == len);
    CHECK(!memcmp(whole.crcs, pieces.crcs, 2 * sizeof *whole.crcs));
    CHECK(whole.crcs[0] != whole.crcs[1]);
    CHECK(megatron_sum_digest(&whole) == megatron_sum_digest(&pieces));
    megatron_sum_release(&whole), megatron_sum_release(&pieces);
    free(bytes);
}

TEST(token_files_without_sums_are_opened_and_cannot_be_verified)
{
    const char *folder = test_folder();
    struct text errors = {0};
    struct megatron m;
    size_t len;
    uint64_t bytes;
    const char *prefix = summed_pair(folder);
    CHECK(megatron_sum_exists(prefix, &len) && len == strlen(prefix));
    CHECK(megatron_sum_exists(test_path(folder, "p.bin"), &len) && len == strlen(prefix));
    CHECK_STATUS(OK, megatron_sum_verify(prefix, &errors, &bytes));
    CHECK(!errors.len && bytes > 800);
    CHECK(remove(test_path(folder, "p.sum")) == 0);
    CHECK(!megatron_sum_exists(prefix, &len));
    CHECK_STATUS(MISSING, megatron_sum_verify(prefix, &errors, &bytes));
    CHECK_MESSAGE("only `llamero prepare` writes checksums");
    CHECK_STATUS(OK, megatron_open(&m, prefix));
    megatron_close(&m);
    text_release(&errors);
}

/* Damages a file in one of five ways; never leaves it as it was. */
static void damage(struct text *t, int trial)
{
    size_t at = (size_t)rng_below(t->len, 1, RNG_TEST, 0, (uint64_t)trial);
    switch (trial % 5) {
    case 0: t->data[at] = (char)(t->data[at] ^ 1 << at % 8); break;
    case 1: t->len = at; break;
    case 2: text_add(t, "\0\0\0\0", 4); break;
    case 3:
        for (size_t i = at; i < t->len && i < at + 64; i++) t->data[i] = (char)~t->data[i];
        break;
    case 4: /* two different words swapped */
        for (size_t i = 0; i + 8 <= t->len; i += 4)
            if (memcmp(t->data + i, t->data + i + 4, 4)) {
                char word[4];
                memcpy(word, t->data + i, 4);
                memmove(t->data + i, t->data + i + 4, 4);
                memcpy(t->data + i + 4, word, 4);
                break;
            }
    }
}

TEST(every_damage_is_found_that_of_the_index_at_open)
{
    enum { TRIALS = 60 };
    const char *folder = test_folder(), *prefix = summed_pair(folder);
    static const char *const names[] = {"p.bin", "p.idx", "p.sum"};
    struct text good = {0}, bad = {0}, errors = {0};
    struct megatron m;
    uint64_t bytes;
    for (int trial = 0; trial < 3 * TRIALS; trial++) {
        const char *path = test_path(folder, names[trial / TRIALS]);
        CHECK_STATUS(OK, file_read(path, 1 << 20, &good));
        text_clear(&bad), text_clear(&errors);
        text_add(&bad, good.data, good.len);
        damage(&bad, trial);
        CHECK_STATUS(OK, file_write(path, bad.data, bad.len));
        CHECK_STATUS(OK, megatron_sum_verify(prefix, &errors, &bytes));
        if (!errors.len) fail_msg("trial %d of %s was not found", trial, path);
        CHECK(strstr(errors.data, path));
        if (trial >= TRIALS) CHECK_STATUS(DATA, megatron_open(&m, prefix));
        if (trial >= TRIALS) CHECK_MESSAGE(path);
        CHECK_STATUS(OK, file_write(path, good.data, good.len));
    }
    CHECK_STATUS(OK, megatron_open(&m, prefix));
    megatron_close(&m);
    text_release(&good), text_release(&bad), text_release(&errors);
}

TEST(a_file_that_is_not_a_checksum_file_is_named_as_such)
{
    const char *folder = test_folder(), *prefix = summed_pair(folder);
    static const char md5[] = "d41d8cd98f00b204e9800998ecf8427e  p.bin\n";
    struct text errors = {0};
    struct megatron m;
    uint64_t bytes;
    CHECK_STATUS(OK, file_write(test_path(folder, "p.sum"), md5, strlen(md5)));
    CHECK_STATUS(DATA, megatron_open(&m, prefix));
    CHECK_MESSAGE("not a checksum file of `llamero prepare`, or damaged; rename or delete it: /");
    CHECK_STATUS(OK, megatron_sum_verify(prefix, &errors, &bytes));
    CHECK(strstr(errors.data, "not a checksum file of `llamero prepare`"));
    text_release(&errors);
}

TEST(a_checksum_file_of_another_format_is_named)
{
    const char *folder = test_folder(), *prefix = summed_pair(folder);
    static const char *const wrong[][2] = {{"{\"format\": 2", "/p.sum: \"format\" must be 1"},
                                           {"{\"format\": 1", "/p.sum: the key \"chunk_bytes\""}};
    struct megatron m;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct text t = {0};
        text_addf(&t, "%s,\n", wrong[i][0]);
        text_addf(&t, "\"sum_crc32c\": \"%08x\"}\n", checksum_crc32c(0, t.data, t.len));
        CHECK_STATUS(OK, file_write(test_path(folder, "p.sum"), t.data, t.len));
        CHECK_STATUS(DATA, megatron_open(&m, prefix));
        CHECK_MESSAGE(wrong[i][1]);
        text_release(&t);
    }
}

TEST(a_mismatch_names_the_range_of_bytes)
{
    const char *folder = test_folder(), *prefix = summed_pair(folder);
    struct text t = {0}, errors = {0};
    struct megatron m;
    uint64_t bytes;
    CHECK_STATUS(OK, file_read(test_path(folder, "p.bin"), 1 << 20, &t));
    t.data[5]++;
    CHECK_STATUS(OK, file_write(test_path(folder, "p.bin"), t.data, t.len));
    CHECK_STATUS(OK, megatron_open(&m, prefix)); /* only a deep check reads all of the .bin */
    megatron_close(&m);
    CHECK_STATUS(OK, megatron_sum_verify(prefix, &errors, &bytes));
    CHECK(strstr(errors.data, "p.bin: checksum mismatch in bytes 0 to "));
    CHECK_STATUS(OK, file_write(test_path(folder, "p.bin"), t.data, t.len - 4));
    CHECK_STATUS(DATA, megatron_open(&m, prefix));
    CHECK_MESSAGE("another program has replaced them; in that case delete");
    CHECK_MESSAGE("p.sum does not match: ");
    CHECK_STATUS(OK, file_read(test_path(folder, "p.idx"), 1 << 20, &t));
    t.data[34]++;
    CHECK_STATUS(OK, file_write(test_path(folder, "p.idx"), t.data, t.len));
    CHECK_STATUS(DATA, megatron_open(&m, prefix)); /* two lines */
    CHECK_MESSAGE("\n");
    CHECK(!strstr(status_message(), "\\n"));
    CHECK(remove(test_path(folder, "p.bin")) == 0);
    text_clear(&errors);
    CHECK_STATUS(OK, megatron_sum_verify(prefix, &errors, &bytes));
    CHECK(strstr(errors.data, "p.bin: no such file"));
    text_release(&t), text_release(&errors);
}
