// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_value.h"

#include "test.h"

TEST(numbers_of_config_json_have_defaults_and_bounds)
{
    const char *text = "{\"a\": 7, \"b\": null, \"c\": -1, \"d\": \"x\", \"e\": 0.5}";
    struct json *root;
    double real;
    int size;
    CHECK_STATUS(OK, json_parse(text, strlen(text), "config.json", &root));
    CHECK_STATUS(OK, hf_value_size(root, "a", 3, &size));
    CHECK(size == 7);
    CHECK_STATUS(OK, hf_value_size(root, "b", 3, &size));
    CHECK(size == 3);
    CHECK_STATUS(DATA, hf_value_size(root, "b", 0, &size));
    CHECK_STATUS(DATA, hf_value_size(root, "c", 3, &size));
    CHECK_STATUS(DATA, hf_value_size(root, "e", 3, &size));
    CHECK_STATUS(OK, hf_value_real(root, "e", 3, &real));
    CHECK(real == 0.5);
    CHECK_STATUS(OK, hf_value_real(root, "none", 3, &real));
    CHECK(real == 3);
    CHECK_STATUS(DATA, hf_value_real(root, "c", 3, &real));
    CHECK_STATUS(DATA, hf_value_real(root, "d", 3, &real));
    CHECK_MESSAGE("\"d\": expected a number");
    CHECK_STATUS(DATA, hf_value_required_real(root, "b", &real));
    CHECK_MESSAGE("\"b\": expected a number");
    json_free(root);
}
