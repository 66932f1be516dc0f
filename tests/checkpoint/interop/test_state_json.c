// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/state_json.h"
#include "test.h"

#include "base/file.h"

#include <string.h>

static const char *write_state(const char *bytes)
{
    const char *path = test_path(test_folder(), "state.json");
    CHECK_STATUS(OK, file_write(path, bytes, strlen(bytes)));
    return path;
}

TEST(state_json_round_trips_the_trainers_text)
{
    static const char train[] = "{\"data\": {\"rows\": [\n[1,2],\n[3,4]]},  \"x\": 2.50}";
    struct text json = {0}, read = {0};
    int64_t step = 0;
    state_json_write(7, train, &json);
    CHECK(strstr(json.data, "{\"format\": 1, \"step\": 7, \"train\": {\"data\"") == json.data);
    CHECK_STATUS(OK, state_json_read(write_state(json.data), &step, &read));
    CHECK(step == 7 && !strcmp(read.data, train));
    text_release(&json), text_release(&read);
}

TEST(state_json_of_a_model_only_checkpoint_has_null)
{
    struct text json = {0}, read = {0};
    int64_t step = 0;
    state_json_write(3, NULL, &json);
    CHECK(!strcmp(json.data, "{\"format\": 1, \"step\": 3, \"train\": null}\n"));
    CHECK_STATUS(OK, state_json_read(write_state(json.data), &step, &read));
    CHECK(step == 3 && !read.len);
    text_release(&json), text_release(&read);
}

TEST(state_json_with_other_white_space_and_order_is_read)
{
    struct text read = {0};
    int64_t step = 0;
    CHECK_STATUS(OK, state_json_read(write_state("{ \"train\":{ },\n\"step\":9, \"format\":1 }"),
                                     &step, &read));
    CHECK(step == 9 && !strcmp(read.data, "{ }"));
    text_release(&read);
}

TEST(malformed_state_json_is_rejected)
{
    static const char *const files[] = {"",
                                        "[]",
                                        "{\"format\": 1}",
                                        "{\"step\": 1}",
                                        "{\"format\": 2, \"step\": 1}",
                                        "{\"format\": 1, \"step\": -1}",
                                        "{\"format\": 1, \"step\": 1, \"tr\\u0061in\": {}}",
                                        "{\"format\": 1, \"step\": 1, \"train\": {}"};
    struct text read = {0};
    int64_t step;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CHECK_STATUS(DATA, state_json_read(write_state(files[i]), &step, &read));
        CHECK(!read.len);
    }
    CHECK_STATUS(MISSING, state_json_read(test_path(test_folder(), "none"), &step, &read));
}
