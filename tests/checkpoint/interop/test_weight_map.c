// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "checkpoint/interop/weight_map.h"

#include <unistd.h>

static char *index_of(const char *json)
{
    char *path = file_join(test_folder(), "index.json");
    CHECK_STATUS(OK, file_write(path, json, strlen(json)));
    return path;
}

TEST(weight_map_maps_tensors_to_files)
{
    struct json *root;
    const struct json *map;
    char *path = index_of("{\"weight_map\": {\"a\": \"one.bin\", \"b\": \"two.bin\"}}");
    CHECK_STATUS(OK, weight_map_read(path, &root, &map));
    CHECK(json_count(map) == 2 && json_string_is(json_get(map, "b"), "two.bin"));
    json_free(root);
    free(path);
}

TEST(invalid_weight_maps_are_rejected)
{
    static const char *const wrong[][2] = {
        {"{}", "weight_map is missing"},
        {"{\"weight_map\": [\"a\"]}", "weight_map is missing"},
        {"{\"weight_map\": {\"a\": 1}}", "a: expected the name of a file"},
        {"{\"weight_map\": {\"a\": \"\"}}", "names \"\""},
        {"{\"weight_map\": {\"a\": \"x/y\"}}", "names \"x/y\""},
        {"{\"weight_map\": {\"a\": \"..\"}}", "names \"..\""},
        {"{\"weight_map\": {\"a\": ", "index.json"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct json *root;
        const struct json *map;
        char *path = index_of(wrong[i][0]);
        CHECK_STATUS(DATA, weight_map_read(path, &root, &map));
        CHECK_MESSAGE(wrong[i][1]);
        free(path);
    }
}

/* Hugging Face's cache has links; a folder from elsewhere must not reach other files with one. */
TEST(links_may_not_leave_the_folder)
{
    static const struct {
        const char *target;
        enum status status;
    } cases[] = {
        {"../../blobs/0123abcd", STATUS_OK},   {"two.bin", STATUS_OK},
        {"../../../../blobs/0123", STATUS_OK}, {"../blobs/0123", STATUS_DATA},
        {"/etc/passwd", STATUS_DATA},          {"../one.bin", STATUS_DATA},
        {"../../blobs/../x", STATUS_DATA},     {"../../blobs/..", STATUS_DATA},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json *root;
        const struct json *map;
        const char *folder = test_folder(), *path = test_path(folder, "index.json");
        const char *json = "{\"weight_map\": {\"a\": \"one.bin\"}}";
        CHECK_STATUS(OK, file_write(path, json, strlen(json)));
        CHECK(symlink(cases[i].target, test_path(folder, "one.bin")) == 0);
        enum status st = weight_map_read(path, &root, &map);
        CHECK(st == cases[i].status);
        if (st)
            CHECK_MESSAGE("outside the model's folder");
        else
            json_free(root);
    }
}
