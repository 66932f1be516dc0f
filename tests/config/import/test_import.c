// SPDX-License-Identifier: Apache-2.0
#include "config/import/imported.h"

static const struct import_row rows[] = {
    {"a.steps", IMPORT_ROW_TAKE, "training.steps", ""},
    {"a.idle", IMPORT_ROW_IGNORE, "", "not needed"},
    {"a.must", IMPORT_ROW_ERROR, "0|none", "other values are not supported"},
    {"a.lost", IMPORT_ROW_ERROR, "", "never"},
    {"b.*", IMPORT_ROW_IGNORE, "", "all of b"},
};

static void add(struct import *im, const char *key, const char *value)
{
    import_add_item(im, key, 7, value ? &value : NULL, 1);
}

TEST(rows_translate_ignore_or_reject_items)
{
    struct import im = {0};
    CHECK_STATUS(OK, import_init(&im, "f", "a program"));
    add(&im, "a.steps", "5"), add(&im, "a.idle", "x"), add(&im, "a.must", "0.0");
    add(&im, "a.lost", "y"), add(&im, "b.c.d", "z");
    CHECK_STATUS(OK, import_apply_rows(&im, rows, 5));
    CHECK(im.config.training.steps == 5 && im.num_notes == 5);
    CHECK(imported_has_note(&im, IMPORT_IGNORED, "a.must", "same here"));
    CHECK(imported_has_note(&im, IMPORT_UNSUPPORTED, "a.lost", "never"));
    CHECK(imported_has_note(&im, IMPORT_IGNORED, "b.c.d", "all of b"));
    import_release(&im);
}

TEST(refused_items_are_errors_unless_accept_loss_names_them)
{
    static const struct import_row groups[] = {{"g.*", IMPORT_ROW_ERROR, "", "not here"}};
    struct import im = {0};
    CHECK_STATUS(OK, import_init(&im, "f", "a program"));
    add(&im, "a.must", "1"), add(&im, "a.lost", "y"), add(&im, "a.must", "null");
    CHECK_STATUS(OK, import_apply_rows(&im, rows, 5));
    import_refuse_default(&im, "--gone", "on by default");
    CHECK_STATUS(CONFIG, import_check_refusals(&im));
    CHECK_MESSAGE("3 settings change the result");
    CHECK_MESSAGE("config.accept_loss=a.lost,a.must,--gone\n");
    CHECK_MESSAGE("accept_loss = [\"a.lost\", \"a.must\", \"--gone\"]");
    CHECK_MESSAGE("f:7: a.lost = y: never");
    CHECK_MESSAGE("\n--gone: on by default");
    import_release(&im);
    CHECK_STATUS(OK, import_init(&im, "f", "a program"));
    add(&im, "g.a", "1"), add(&im, "g.b", "2"); /* a group is accepted by its name */
    CHECK_STATUS(OK, import_apply_rows(&im, groups, 1));
    CHECK_STATUS(OK, config_assign(&im.config, "config.accept_loss", "g.*", "test"));
    CHECK_STATUS(OK, import_check_refusals(&im));
    import_release(&im);
}

TEST(a_lenient_import_lists_unknown_items)
{
    struct import im = {.lenient = true};
    CHECK_STATUS(OK, import_init(&im, "f", "a program"));
    add(&im, "zzz", "1"), add(&im, "a.idle", "x");
    CHECK_STATUS(OK, import_check_known(&im, rows, 5));
    CHECK(imported_has_note(&im, IMPORT_UNKNOWN, "zzz", "not used"));
    CHECK_STATUS(OK, import_check_refusals(&im));
    import_release(&im);
}

TEST(items_without_a_row_or_with_a_wrong_value_report_their_place)
{
    static const struct {
        const char *key, *value, *message;
        bool missing;
    } cases[] = {{"a.stps", "5", "f:7: a.stps: not a key of a program; did you mean a.steps?", 0},
                 {"b.steps", "5", "", 1},
                 {"a.steps", "x", "f:7: a.steps: training.steps=x: expected a whole number", 0},
                 {"a.must", "1", "other values are not supported", 1},
                 {"zzz", "1",
                  "f:7: zzz: not a key of a program; --lenient lists such keys and continues", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        CHECK_STATUS(OK, import_init(&im, "f", "a program"));
        add(&im, cases[i].key, cases[i].value);
        enum status st = import_check_known(&im, rows, 5);
        if (!st) st = import_apply_rows(&im, rows, 5);
        CHECK(st == (cases[i].missing ? STATUS_OK : STATUS_CONFIG));
        if (st) CHECK_MESSAGE(cases[i].message);
        import_release(&im);
    }
}

TEST(values_are_parsed_strictly_and_set_in_the_configuration)
{
    struct import im = {0};
    int64_t n;
    double x;
    bool b;
    const char *text;
    CHECK_STATUS(OK, import_init(&im, "f", "a program"));
    add(&im, "n", "12"), add(&im, "x", ".9"), add(&im, "b", "Yes"), add(&im, "null", NULL);
    add(&im, "bad", "1x"), add(&im, "n", "13");
    CHECK_STATUS(OK, import_parse_int(&im, import_get(&im, "n"), 0, 20, &n));
    CHECK(n == 13 && !import_get(&im, "null") && !import_get(&im, "absent"));
    CHECK_STATUS(CONFIG, import_parse_int(&im, import_get(&im, "n"), 0, 5, &n));
    CHECK_MESSAGE("f:7: n = 13: expected a whole number from 0 to 5");
    CHECK_STATUS(OK, import_parse_real(&im, import_get(&im, "x"), &x));
    CHECK_STATUS(OK, import_parse_bool(&im, import_get(&im, "b"), &b));
    CHECK(x == 0.9 && b);
    CHECK_STATUS(CONFIG, import_parse_real(&im, import_get(&im, "bad"), &x));
    CHECK_STATUS(CONFIG, import_parse_bool(&im, import_get(&im, "bad"), &b));
    CHECK_STATUS(OK, import_parse_string(&im, import_get(&im, "bad"), &text));
    CHECK_STATUS(OK, import_copy(&im, import_get(&im, "x"), "optimizer.beta1", ""));
    CHECK_STATUS(OK, import_copy(&im, import_get(&im, "b"), "metrics.enable_tensorboard", ""));
    CHECK(im.config.optimizer.beta1 == 0.9 && im.config.metrics.enable_tensorboard);
    CHECK_STATUS(CONFIG, import_setf(&im, NULL, "job.dump_folder", "%600d", 1));
    CHECK_MESSAGE("longer than 511 bytes");
    import_release(&im);
}
