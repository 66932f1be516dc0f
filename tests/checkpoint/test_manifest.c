// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include "checkpoint/rig.h"

#include "base/checksum.h"

enum { LARGE = 3 * MANIFEST_CHUNK + 12345 };

/* Random bytes, so that no two chunks are equal. */
static char *random_bytes(size_t len, uint64_t seed)
{
    char *bytes = heap(len);
    for (size_t i = 0; i + 8 <= len; i += 8) {
        uint64_t x = rng_below(UINT64_MAX, seed, RNG_TEST, 0, i);
        memcpy(bytes + i, &x, 8);
    }
    return bytes;
}

/* Adds the files large (written in odd sizes), chunk (exactly one), empty and small. */
static const char *manifest_folder(int64_t step)
{
    const char *folder = test_folder();
    struct manifest m = {.folder = folder, .step = step};
    struct manifest_file f;
    char *bytes = random_bytes(LARGE, (uint64_t)step);
    CHECK_STATUS(OK, manifest_file_open(&f, &m, "large"));
    for (size_t at = 0, n = 1; at < LARGE; at += n, n = n * 7 + 3) {
        if (n > LARGE - at) n = LARGE - at;
        CHECK_STATUS(OK, manifest_file_write(&f, bytes + at, n));
    }
    CHECK_STATUS(OK, manifest_file_close(&f));
    CHECK_STATUS(OK, manifest_write_file(&m, "chunk", bytes, MANIFEST_CHUNK));
    CHECK_STATUS(OK, manifest_write_file(&m, "empty", "", 0));
    CHECK_STATUS(OK, manifest_write_file(&m, "a \"quoted\" name", "small", 5));
    CHECK_STATUS(OK, manifest_finish(&m));
    manifest_release(&m);
    free(bytes);
    return folder;
}

TEST(manifest_verifies_and_lists_its_files)
{
    const char *folder = manifest_folder(12);
    struct file_list l;
    int64_t step;
    CHECK_STATUS(OK, manifest_check(folder, &step));
    CHECK(step == 12);
    CHECK_STATUS(OK, manifest_verify(folder, NULL));
    CHECK_STATUS(OK, manifest_verify(folder, "large"));
    CHECK_STATUS(DATA, manifest_verify(folder, "none"));
    CHECK_MESSAGE("the manifest does not list none");
    CHECK_STATUS(OK, manifest_list(folder, &l));
    CHECK(l.count == 4 && !strcmp(l.paths[0], "large") && !strcmp(l.paths[2], "empty"));
    CHECK(!strcmp(l.paths[3], "a \"quoted\" name"));
    file_list_release(&l);
    CHECK_STATUS(MISSING, manifest_check(test_folder(), &step));
}

TEST(bit_flip_in_any_chunk_is_detected)
{
    static const uint64_t places[] = {0,
                                      4095,
                                      MANIFEST_CHUNK - 1,
                                      MANIFEST_CHUNK,
                                      2 * MANIFEST_CHUNK + 7,
                                      3 * MANIFEST_CHUNK,
                                      LARGE - 1};
    const char *folder = manifest_folder(1), *path = test_path(folder, "large");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        flip(path, places[i], 1 << i);
        CHECK_STATUS(DATA, manifest_verify(folder, NULL));
        CHECK_MESSAGE(path);
        CHECK_STATUS(DATA, manifest_verify(folder, "large"));
        CHECK_STATUS(OK, manifest_verify(folder, "chunk"));
        flip(path, places[i], 1 << i);
    }
    flip(path, MANIFEST_CHUNK + 5, 1);
    CHECK_STATUS(DATA, manifest_verify(folder, NULL));
    CHECK_MESSAGE("checksum mismatch in bytes 1048576 to 2097152");
    flip(path, MANIFEST_CHUNK + 5, 1);
    CHECK_STATUS(OK, manifest_verify(folder, NULL));
}

TEST(every_byte_of_the_manifest_is_checksummed)
{
    const char *folder = manifest_folder(1), *path = test_path(folder, MANIFEST_NAME);
    uint64_t size;
    int64_t step;
    CHECK_STATUS(OK, file_size(path, &size));
    for (uint64_t at = 0; at < size; at++) {
        flip(path, at, 1 << at % 8);
        CHECK_STATUS(DATA, manifest_check(folder, &step));
        CHECK_MESSAGE(MANIFEST_NAME);
        flip(path, at, 1 << at % 8);
    }
    CHECK_STATUS(OK, manifest_check(folder, &step));
}

/* Replaces the manifest's format and corrects its checksum. */
static void set_format(const char *path, const char *format)
{
    struct text t = {0}, changed = {0};
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    char *old = strstr(t.data, "\"format\": 1, "), *tail = strstr(t.data, "\"manifest_crc32c\"");
    CHECK(old && tail);
    text_adds(&changed, "{");
    text_adds(&changed, format);
    old += strlen("\"format\": 1, ");
    text_add(&changed, old, (size_t)(tail - old));
    text_addf(&changed, "\"manifest_crc32c\": \"%08x\"}\n",
              checksum_crc32c(0, changed.data, changed.len));
    CHECK_STATUS(OK, file_write(path, changed.data, changed.len));
    text_release(&t);
    text_release(&changed);
}

TEST(a_manifest_of_another_format_is_rejected)
{
    static const struct {
        const char *format;
        enum status how;
    } cases[] = {{"\"format\": 1, ", STATUS_OK},
                 {"", STATUS_OK},
                 {"\"format\": 2, ", STATUS_DATA},
                 {"\"format\": \"1\", ", STATUS_DATA}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *folder = manifest_folder(1);
        int64_t step;
        set_format(test_path(folder, MANIFEST_NAME), cases[i].format);
        CHECK(manifest_check(folder, &step) == cases[i].how);
        if (cases[i].how) CHECK_MESSAGE("manifest.json: unknown \"format\"");
    }
}

TEST(truncated_manifest_is_rejected)
{
    const char *folder = manifest_folder(1), *path = test_path(folder, MANIFEST_NAME);
    struct text t = {0};
    int64_t step;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    for (size_t len = 0; len < t.len; len++) {
        FILE *f = fopen(path, "wb");
        CHECK(f && fwrite(t.data, 1, len, f) == len && fclose(f) == 0);
        CHECK_STATUS(DATA, manifest_check(folder, &step));
    }
    text_adds(&t, " ");
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    CHECK_STATUS(DATA, manifest_check(folder, &step));
    text_release(&t);
}

static void swap_chunks(const char *path, size_t a, size_t b)
{
    struct text t = {0};
    char *kept = heap(MANIFEST_CHUNK);
    CHECK_STATUS(OK, file_read(path, LARGE, &t));
    memcpy(kept, t.data + a * MANIFEST_CHUNK, MANIFEST_CHUNK);
    memcpy(t.data + a * MANIFEST_CHUNK, t.data + b * MANIFEST_CHUNK, MANIFEST_CHUNK);
    memcpy(t.data + b * MANIFEST_CHUNK, kept, MANIFEST_CHUNK);
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    free(kept);
    text_release(&t);
}

static void copy(const char *from, const char *to)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(from, 1 << 26, &t));
    CHECK_STATUS(OK, file_write(to, t.data, t.len));
    text_release(&t);
}

TEST(swapped_chunks_and_files_are_detected)
{
    const char *folder = manifest_folder(1), *other = manifest_folder(2);
    const char *path = test_path(folder, "large");
    swap_chunks(path, 0, 2);
    CHECK_STATUS(DATA, manifest_verify(folder, NULL));
    CHECK_MESSAGE("large: checksum mismatch in bytes 0 to 1048576");
    swap_chunks(path, 0, 2);
    CHECK_STATUS(OK, manifest_verify(folder, NULL));
    /* Another step's file, then that step's manifest with this step's files. */
    const char *kept = test_path(folder, "kept");
    copy(path, kept);
    copy(test_path(other, "large"), path);
    CHECK_STATUS(DATA, manifest_verify(folder, NULL));
    copy(kept, path);
    CHECK_STATUS(OK, manifest_verify(folder, NULL));
    copy(test_path(other, MANIFEST_NAME), test_path(folder, MANIFEST_NAME));
    CHECK_STATUS(DATA, manifest_verify(folder, NULL));
    CHECK_MESSAGE("large: checksum mismatch in bytes 0 to 1048576");
}

TEST(chunk_checksum_covers_step_file_and_chunk_number)
{
    const char *folder = test_folder();
    struct manifest m = {.folder = folder, .step = 1};
    char *same = heap(2 * MANIFEST_CHUNK);
    CHECK_STATUS(OK, manifest_write_file(&m, "a", same, 2 * MANIFEST_CHUNK));
    CHECK_STATUS(OK, manifest_write_file(&m, "b", same, MANIFEST_CHUNK));
    m.step = 2;
    CHECK_STATUS(OK, manifest_write_file(&m, "c", same, 1));
    CHECK_STATUS(OK, manifest_write_file(&m, "d", same, 1));
    uint32_t sums[4] = {
        checksum_crc32c(checksum_crc32c(0, "1/a/0", 5), same, MANIFEST_CHUNK),
        checksum_crc32c(checksum_crc32c(0, "1/a/1", 5), same, MANIFEST_CHUNK),
        checksum_crc32c(checksum_crc32c(0, "1/b/0", 5), same, MANIFEST_CHUNK),
        checksum_crc32c(checksum_crc32c(0, "2/c/0", 5), same, 1),
    };
    CHECK(m.files[0].num_checksums == 2 && m.files[0].checksums[0] == sums[0]);
    CHECK(m.files[0].checksums[1] == sums[1] && m.files[1].checksums[0] == sums[2]);
    CHECK(m.files[2].checksums[0] == sums[3] && m.files[3].checksums[0] != sums[3]);
    manifest_release(&m);
    free(same);
}

TEST(missing_and_resized_files_are_named)
{
    const char *folder = manifest_folder(1), *path = test_path(folder, "chunk");
    int64_t step;
    FILE *f = fopen(path, "ab");
    CHECK(f && fputc(0, f) == 0 && fclose(f) == 0);
    CHECK_STATUS(DATA, manifest_check(folder, &step));
    CHECK_MESSAGE("chunk has 1048577 bytes, expected 1048576");
    CHECK_STATUS(OK, file_write(path, "", 0));
    CHECK_STATUS(DATA, manifest_verify(folder, NULL));
    CHECK_MESSAGE("chunk has 0 bytes, expected 1048576");
    CHECK_STATUS(OK, file_remove_tree(path));
    CHECK_STATUS(DATA, manifest_check(folder, &step));
    CHECK_MESSAGE("chunk is missing");
    CHECK_STATUS(OK, file_make_dirs(path));
    CHECK_STATUS(DATA, manifest_check(folder, &step));
    CHECK_MESSAGE("not a regular file");
}

TEST(unlisted_files_are_ignored)
{
    const char *folder = manifest_folder(1);
    CHECK_STATUS(OK, file_write(test_path(folder, "README.md"), "mine", 4));
    CHECK_STATUS(OK, manifest_verify(folder, NULL));
}

/* A manifest with any content and a valid checksum. */
static const char *folder_with_manifest(const char *body)
{
    const char *folder = test_folder();
    struct text t = {0};
    CHECK_STATUS(OK, file_write(test_path(folder, "a"), "abc", 3));
    text_addf(&t, "%s\n", body);
    uint32_t own = checksum_crc32c(0, t.data, t.len);
    text_addf(&t, "\"manifest_crc32c\": \"%08x\"}\n", own);
    CHECK_STATUS(OK, file_write(test_path(folder, MANIFEST_NAME), t.data, t.len));
    text_release(&t);
    return folder;
}

#define HEAD  "{\"step\": 1, \"chunk_bytes\": 1048576, \"files\": "
#define ENTRY "{\"name\": \"a\", \"size\": 3, \"crc32c\": "

TEST(malformed_manifest_with_valid_checksum_is_rejected)
{
    static const char *const bodies[] = {"{",
                                         "[1,",
                                         "{\"files\": [],",
                                         "{\"step\": -1, \"chunk_bytes\": 1048576, \"files\": [],",
                                         "{\"step\": 1, \"chunk_bytes\": 0, \"files\": [],",
                                         "{\"step\": 1, \"chunk_bytes\": 1048576,",
                                         HEAD "{},",
                                         HEAD "[7],",
                                         HEAD "[[]],",
                                         HEAD "[{\"name\": 3}],",
                                         HEAD "[{\"name\": \"\"}],",
                                         HEAD "[{\"name\": \"a\"}],",
                                         HEAD "[{\"name\": \"../a\", \"size\": 3}],",
                                         HEAD "[{\"name\": \"/etc/passwd\"}],",
                                         HEAD "[{\"name\": \".\", \"size\": 3}],",
                                         HEAD "[{\"name\": \"a\", \"size\": -3}],",
                                         HEAD "[{\"name\": \"a\", \"size\": 3}],",
                                         HEAD "[" ENTRY "3}],",
                                         HEAD "[" ENTRY "[]}],",
                                         HEAD "[" ENTRY "[7]}],",
                                         HEAD "[" ENTRY "[\"00000000\"]}],",
                                         HEAD "[" ENTRY "{}}],"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct file_list names;
        const char *folder = folder_with_manifest(bodies[i]);
        CHECK_STATUS(DATA, manifest_verify(folder, NULL));
        if (strstr(bodies[i], "../") || strstr(bodies[i], "/etc") || strstr(bodies[i], "\".\""))
            CHECK_MESSAGE("which is not a file name");
        if (manifest_list(folder, &names) == STATUS_OK) file_list_release(&names);
    }
    struct text good = {0}, more = {0};
    uint32_t sum = checksum_crc32c(checksum_crc32c(0, "1/a/0", 5), "abc", 3);
    text_addf(&good, HEAD "[" ENTRY "[\"%08x\"]}],", sum);
    CHECK_STATUS(OK, manifest_verify(folder_with_manifest(good.data), NULL));
    text_addf(&more, HEAD "[" ENTRY "[\"%08x\", \"%08x\"]}],", sum, sum);
    CHECK_STATUS(DATA, manifest_verify(folder_with_manifest(more.data), NULL));
    CHECK_MESSAGE("more checksums than the file has chunks");
    text_release(&good);
    text_release(&more);
}

TEST(file_is_added_to_the_manifest_only_once)
{
    const char *folder = test_folder();
    struct manifest m = {.folder = folder, .step = 1};
    struct manifest_file f;
    CHECK_STATUS(OK, manifest_write_file(&m, "a", "x", 1));
    CHECK_STATUS(IO, manifest_write_file(&m, "a", "y", 1));
    CHECK_STATUS(IO, manifest_file_open(&f, &m, "no/such/folder"));
    manifest_file_abandon(&f);
    manifest_release(&m);
}

static bool has_same_entries(const struct manifest *a, const struct manifest *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; i < a->count && same; i++) {
        const struct manifest_entry *x = &a->files[i], *y = &b->files[i];
        same = !strcmp(x->name, y->name) && x->size == y->size &&
               x->num_checksums == y->num_checksums &&
               (!x->num_checksums ||
                !memcmp(x->checksums, y->checksums, x->num_checksums * sizeof *x->checksums));
    }
    return same;
}

/* One writer writes sequentially, two write whole chunks in any order. */
TEST(file_written_in_chunks_has_the_same_manifest_entry)
{
    const char *once = test_folder(), *shared = test_folder();
    struct manifest a = {.folder = once, .step = 4}, b = {.folder = shared, .step = 4}, other = b;
    struct manifest_file first, second;
    char *bytes = random_bytes(LARGE, 1);
    CHECK_STATUS(IO, manifest_file_join(&first, &b, "large"));
    manifest_file_abandon(&first);
    CHECK_STATUS(OK, manifest_write_file(&a, "large", bytes, LARGE));
    CHECK_STATUS(OK, manifest_file_open(&first, &b, "large"));
    CHECK_STATUS(OK, manifest_file_join(&second, &other, "large"));
    manifest_file_set_size(&first, LARGE);
    manifest_file_set_size(&second, LARGE);
    uint64_t at = 2 * MANIFEST_CHUNK;
    manifest_file_checksum_at(&second, bytes + at, LARGE - at, at);
    CHECK_STATUS(OK, manifest_file_write_at(&second, bytes + at, LARGE - at, at));
    manifest_file_checksum_at(&first, bytes, at, 0);
    CHECK_STATUS(OK, manifest_file_write_at(&first, bytes, at, 0));
    CHECK_STATUS(OK, manifest_file_sync(&second));
    CHECK(first.num_checksums == 4 && !first.checksums[2] && !second.checksums[1] &&
          second.checksums[3]);
    for (size_t i = 2; i < 4; i++) first.checksums[i] = second.checksums[i];
    CHECK_STATUS(OK, manifest_file_close(&first));
    manifest_file_abandon(&second);
    CHECK(has_same_entries(&a, &b));
    CHECK_STATUS(OK, manifest_finish(&b));
    CHECK_STATUS(OK, manifest_verify(shared, NULL));
    manifest_release(&a), manifest_release(&b), manifest_release(&other);
    free(bytes);
}

TEST(existing_file_gets_the_entry_of_a_written_one)
{
    static const size_t sizes[] = {0, 7, MANIFEST_CHUNK, LARGE};
    char *bytes = random_bytes(LARGE, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct manifest written = {.folder = test_folder(), .step = 4};
        struct manifest existing = {.folder = test_folder(), .step = 4};
        CHECK_STATUS(OK, manifest_write_file(&written, "a", bytes, sizes[i]));
        CHECK_STATUS(MISSING, manifest_add_existing(&existing, "a"));
        CHECK_STATUS(OK, file_write(test_path(existing.folder, "a"), bytes, sizes[i]));
        CHECK_STATUS(OK, manifest_add_existing(&existing, "a"));
        CHECK(has_same_entries(&written, &existing));
        manifest_release(&written), manifest_release(&existing);
    }
    free(bytes);
}
