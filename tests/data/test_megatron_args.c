// SPDX-License-Identifier: Apache-2.0
#include "data/megatron_args.h"

#include "base/file.h"
#include "data/rig.h"

#include <fcntl.h>
#include <unistd.h>

static void make_rig(struct rig *r, const char *folder, int sources)
{
    enum { DOCUMENTS = 90 };
    static const char *const names[] = {"a", "b"};
    int lengths[DOCUMENTS];
    for (int d = 0; d < DOCUMENTS; d++) lengths[d] = 1 + d * 7 % 23;
    rig_init(r, NULL, 8);
    r->data.order = ORDER_megatron;
    r->data.seed = 1234;
    r->data.split = "969, 30, 1";
    r->options.run_rows = 100;
    for (int i = 0; i < sources; i++) {
        rig_tokens(folder, names[i], lengths, DOCUMENTS, 0);
        rig_add(r, test_path(folder, names[i]), i ? 0.25 : 0.75);
    }
}

/* Loads a data position with these args; *err: what was logged. */
static enum status load_with(struct rig *r, const char *args, struct text *err)
{
    struct text cursor = {0};
    struct json *json = NULL;
    const char *path = test_path(test_folder(), "err");
    int old = dup(STDERR_FILENO), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    CHECK(old >= 0 && fd >= 0);
    text_addf(&cursor, "{\"consumed_train_samples\": 12, \"args\": %s}", args);
    CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &json));
    struct loader *l = rig_open(r);
    CHECK(dup2(fd, STDERR_FILENO) >= 0);
    enum status st = loader_load(l, json);
    CHECK(dup2(old, STDERR_FILENO) >= 0 && !close(old) && !close(fd));
    text_clear(err);
    CHECK_STATUS(OK, file_read(path, 1 << 20, err));
    loader_close(l);
    json_free(json);
    text_release(&cursor);
    return st;
}

TEST(arguments_of_megatron_with_another_order_are_an_error)
{
    static const struct {
        const char *args, *message; /* NULL: the same order */
    } cases[] = {
        {"{}", NULL},
        {"{\"seed\": 1234, \"seq_length\": 8, \"split\": \"96.9,3,0.1\"}", NULL},
        {"{\"seed\": 5}", "args.seed = 5, but data.seed = 1234. Set these options to"},
        {"{\"seq_length\": 4, \"seed\": 5}", "; args.seq_length = 4, but training.seq_len = 8"},
        {"{\"split\": \"99,1,0\"}", "args.split = \"99,1,0\", but data.split = \"969, 30, 1\""},
        {"{\"dataloader_type\": \"single\"}", NULL},
        {"{\"dataloader_type\": \"cyclic\"}",
         "args.dataloader_type = \"cyclic\", but data.sampler = \"single\""},
        {"{\"data_path\": [\"/data/a\"]}",
         "args.data_path has 1 sources, but the configuration has 2"},
        {"{\"data_path\": [\"/data/a\", \"/data/b\", \"c\"]}", "args.data_path has 3 sources"},
        {"{\"data_path\": [\"/data/a\", \"/data/b\"]}",
         "args.data_path has no weights, but sources are blended by weights (data.blend)"},
        {"{\"data_path\": [\"3\", \"/data/a\", \"1\", \"/data/b\"]}", NULL},
        {"{\"data_path\": [\"0.7\", \"/data/a\", \"0.3\", \"/data/b\"]}",
         "args.data_path has other weights than data.source"},
    };
    struct rig r;
    struct text err = {0};
    make_rig(&r, test_folder(), 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum status st = load_with(&r, cases[i].args, &err);
        CHECK(st == (cases[i].message ? STATUS_CONFIG : STATUS_OK));
        CHECK(!strstr(err.data ? err.data : "", "warning"));
        if (!cases[i].message) continue;
        CHECK_MESSAGE(cases[i].message);
        CHECK_MESSAGE("checkpoint.exclude_from_loading = [\"dataloader\"]");
    }
    r.data.sampler = SAMPLER_cyclic, r.data.sampler_ranks = 2, r.data.sampler_rows = 3;
    CHECK_STATUS(CONFIG,
                 load_with(&r, "{\"dataloader_type\": \"cyclic\", \"micro_batch_size\": 1}", &err));
    CHECK_MESSAGE("args.micro_batch_size = 1, but data.sampler_rows = 3");
    CHECK_STATUS(CONFIG, load_with(&r,
                                   "{\"dataloader_type\": \"cyclic\", \"micro_batch_size\": 3, "
                                   "\"data_parallel_size\": 4}",
                                   &err));
    CHECK_MESSAGE("args.data_parallel_size = 4, but data.sampler_ranks = 2");
    CHECK_STATUS(
        CONFIG, load_with(&r, "{\"dataloader_type\": \"cyclic\", \"data_sharding\": false}", &err));
    CHECK_MESSAGE("args.data_sharding = False, but data.sampler = \"cyclic\"");
    text_release(&err);
    rig_release(&r);
}

/* Loads the position twice: args in `warned` log a warning, those in `silent` none. */
static void check_warning(struct rig *r, const char *warned, const char *silent,
                          const char *message)
{
    struct text err = {0};
    CHECK_STATUS(OK, load_with(r, warned, &err));
    CHECK(strstr(err.data, "warning: ") && strstr(err.data, message));
    CHECK_STATUS(OK, load_with(r, silent, &err));
    CHECK(!strstr(err.data, "warning: "));
    text_release(&err);
}

static const char samples_message[] = "built its data order for ";

/* One epoch has samples for 100, but not for 200. */
TEST(samples_and_paths_of_megatron_that_may_have_another_order_are_warned_of)
{
    struct rig r;
    make_rig(&r, test_folder(), 1);
    check_warning(&r, "{\"samples\": 200}", "{\"samples\": 100}", samples_message);
    check_warning(&r, "{\"samples\": 500}", "{\"samples\": 50}", samples_message);
    check_warning(&r, "{\"data_path\": [\"/data/other\"]}", "{\"data_path\": [\"elsewhere/a\"]}",
                  "/data/other");
    rig_release(&r);
}

TEST(a_source_may_name_a_file_of_the_pair_or_a_pattern)
{
    static const char *const paths[] = {"a.idx", "a.bin", "[a].*"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *folder = test_folder();
        struct rig r;
        make_rig(&r, folder, 1);
        r.sources[0].path = test_path(folder, paths[i]);
        check_warning(&r, "{\"data_path\": [\"/data/ab\"]}", "{\"data_path\": [\"/data/a\"]}",
                      "/data/ab");
        rig_release(&r);
    }
}

/* An epoch of the first source has 130 samples.  Its index must have 3/4 of all and a margin: 130
 * for 172, but 131 for 173. */
TEST(samples_of_a_blend_by_weights_count_for_each_source)
{
    struct rig r;
    make_rig(&r, test_folder(), 2);
    check_warning(&r, "{\"samples\": 173}", "{\"samples\": 172}", samples_message);
    r.data.sampler = SAMPLER_cyclic, r.data.sampler_ranks = 2, r.data.sampler_rows = 3;
    check_warning(&r, "{\"samples\": 99}", "{\"samples\": 100}", samples_message);
    rig_release(&r);
}

/* Such a blend has at most one epoch.  The sampler "cyclic" permutes all of its samples. */
TEST(samples_of_a_blend_by_lengths_count_for_the_cyclic_sampler)
{
    struct rig r;
    struct text err = {0};
    make_rig(&r, test_folder(), 2);
    r.data.blend = BLEND_BY_lengths;
    CHECK_STATUS(OK, load_with(&r, "{\"samples\": 50}", &err));
    CHECK(!strstr(err.data, "warning: "));
    r.data.sampler = SAMPLER_cyclic, r.data.sampler_ranks = 2, r.data.sampler_rows = 3;
    check_warning(&r, "{\"samples\": 99}", "{\"samples\": 100}", samples_message);
    r.options.run_rows = 1000; /* more than there are */
    check_warning(&r, "{\"samples\": 100}", "{\"samples\": 2000}", samples_message);
    text_release(&err);
    rig_release(&r);
}
