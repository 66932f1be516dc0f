// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "formats/torch_writer.h"
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

TEST(consecutive_archives_in_one_file_read_back)
{
    static const float numbers[] = {1, 2, 3, 4, 5, 6, 7};
    char root[] = "", first[] = "a.first", second[] = "second";
    const struct torch_tensor two[] = {{first, SAFETENSORS_F32, 1, {3}, {0}, NULL, 0},
                                       {second, SAFETENSORS_F32, 2, {2, 2}, {0}, NULL, 0}};
    const struct torch_tensor one = {root, SAFETENSORS_BF16, 1, {5}, {0}, NULL, 0};
    const char *path = test_path(test_folder(), "x.pth");
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    struct torch_writer w;
    struct file_map map;
    uint64_t size, more;
    CHECK_STATUS(OK, torch_writer_open(&w, fd, path, 0, two, 2));
    for (int i = 0; i < 7; i++) CHECK_STATUS(OK, torch_writer_put(&w, numbers + i, 4));
    CHECK_STATUS(OK, torch_writer_close(&w, &size));
    torch_writer_release(&w);
    CHECK_STATUS(OK, torch_writer_open(&w, fd, path, size, &one, 1));
    CHECK_STATUS(OK, torch_writer_put(&w, "0123456789", 10));
    CHECK_STATUS(OK, torch_writer_close(&w, &more));
    torch_writer_release(&w);
    close(fd);
    CHECK_STATUS(OK, file_map_open(&map, path));
    CHECK(map.size == size + more);
    for (int i = 0; i < 2; i++) {
        struct torch_archive a;
        struct torch_tensors t;
        const unsigned char *at = map.data + (i ? size : 0);
        CHECK_STATUS(OK, torch_archive_open(&a, at, i ? more : size, path));
        CHECK_STATUS(OK, torch_archive_tensors(&a, &t));
        CHECK(t.count == (i ? 1 : 2));
        CHECK(!memcmp(t.all[0].data, i ? (const void *)"0123456789" : numbers, i ? 10 : 12));
        if (!i) CHECK(!memcmp(t.all[1].data, numbers + 3, 16) && t.all[1].strides[0] == 2);
        for (size_t e = 0; e < a.zip.count; e++) {
            CHECK(a.zip.entries[e].crc && zip_entry_crc_ok(&a.zip.entries[e]));
            CHECK((size_t)(a.zip.entries[e].data - at) % ZIP_ALIGN == 0);
        }
        torch_tensors_release(&t);
        torch_archive_close(&a);
    }
    file_map_close(&map);
}

TEST(an_archive_may_hold_any_pickle_and_no_tensors)
{
    const char *path = test_path(test_folder(), "x.pth");
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    char value[] = "\x80\2K\5.";
    const struct text pickle = {value, sizeof value - 1, 0};
    struct torch_writer w;
    struct torch_archive a;
    struct file_map map;
    uint64_t size;
    CHECK_STATUS(OK, torch_writer_open_pickle(&w, fd, path, 0, &pickle));
    CHECK_STATUS(OK, torch_writer_close(&w, &size));
    torch_writer_release(&w);
    close(fd);
    CHECK_STATUS(OK, file_map_open(&map, path));
    CHECK_STATUS(OK, torch_archive_open(&a, map.data, map.size, path));
    CHECK(a.pickle.root->integer == 5 && map.size == size);
    torch_archive_close(&a);
    file_map_close(&map);
}

TEST(an_archive_in_memory_equals_the_one_in_a_file)
{
    const char *path = test_path(test_folder(), "x.pth");
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    char value[] = "\x80\2].";
    const struct text pickle = {value, sizeof value - 1, 0};
    struct torch_writer w;
    struct text memory = {0}, file = {0};
    uint64_t size;
    CHECK_STATUS(OK, torch_writer_open_pickle(&w, fd, path, 0, &pickle));
    CHECK_STATUS(OK, torch_writer_close(&w, &size));
    torch_writer_release(&w);
    close(fd);
    torch_writer_pickle(&pickle, &memory);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &file));
    CHECK(file.len == memory.len && !memcmp(file.data, memory.data, file.len));
    text_release(&memory), text_release(&file);
}
