// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/files/hf_node.h"

static struct json *parsed(const char *text)
{
    struct json *v;
    CHECK_STATUS(OK, json_parse(text, strlen(text), "node", &v));
    return v;
}

TEST(hf_node_compares_and_names_types)
{
    struct json *split = parsed("{\"type\": \"Split\"}"), *other = parsed("{\"type\": 7}");
    CHECK(hf_node_type_is(split, "Split") && !hf_node_type_is(split, "Digits"));
    CHECK(!hf_node_type_is(other, "Split") && !hf_node_type_is(NULL, "Split"));
    CHECK(!strcmp(hf_node_type(split), "Split"));
    CHECK(!strcmp(hf_node_type(other), "without a type"));
    CHECK(!strcmp(hf_node_type(NULL), "without a type"));
    json_free(split), json_free(other);
}

TEST(hf_node_knows_settings_that_do_nothing)
{
    static const char *const noops[] = {"null",
                                        "false",
                                        "0",
                                        "\"\"",
                                        "[]",
                                        "{\"type\": \"Sequence\", \"normalizers\": []}",
                                        "{\"type\": \"Sequence\", \"pretokenizers\": []}"};
    static const char *const others[] = {"true",
                                         "0.1",
                                         "\"##\"",
                                         "[null]",
                                         "{\"type\": \"NFC\"}",
                                         "{\"type\": \"Sequence\", \"normalizers\": [{}]}"};
    CHECK(hf_node_is_noop(NULL));
    for (size_t i = 0; i < sizeof noops / sizeof *noops; i++) {
        struct json *v = parsed(noops[i]);
        if (!hf_node_is_noop(v)) fail_msg("%s", noops[i]);
        json_free(v);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct json *v = parsed(others[i]);
        if (hf_node_is_noop(v)) fail_msg("%s", others[i]);
        json_free(v);
    }
}
