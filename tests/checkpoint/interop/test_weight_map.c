// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "checkpoint/interop/weight_map.h"

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
