// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_process.h"
#include "test.h"

#include "base/clock.h"
#include "base/file.h"

static void check_split(const char *command, const char *want)
{
    char **words = s3_process_split(command);
    struct text joined = {0};
    for (size_t i = 0; words && words[i]; i++) {
        text_addf(&joined, "[%s]", words[i]);
        free(words[i]);
    }
    free(words);
    text_adds(&joined, words ? "" : "none");
    if (strcmp(joined.data, want)) print_error("%s: %s\n", command, joined.data);
    CHECK(!strcmp(joined.data, want));
    text_release(&joined);
}

/* The results are those of Python's shlex.split. */
TEST(s3_process_splits_words_as_python_does)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"  a\tb\n c ", "[a][b][c]"},
        {"a 'b c' \"d e\"", "[a][b c][d e]"},
        {"a'b'\"c\"d", "[abcd]"},
        {"a '' \"\" b", "[a][][][b]"},
        {"a\\ b \\'c\\\" \\\\", "[a b]['c\"][\\]"},
        {"\"a\\\"b\\\\c\\d\\$\"", "[a\"b\\c\\d\\$]"},
        {"'a\\'b", "[a\\b]"},
        {"a $HOME ~ * | b; c > d # e", "[a][$HOME][~][*][|][b;][c][>][d][#][e]"},
        {"a 'b", "none"},
        {"a \"b", "none"},
        {"a \\", "none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_split(cases[i][0], cases[i][1]);
}

#define JSON "{\"Version\": 1, \"AccessKeyId\": \"AKID\", \"SecretAccessKey\": \"hidden\"}"

TEST(s3_process_reads_the_output_of_a_command)
{
    struct s3_keys k = {0};
    struct text command = {0};
    const char *path = test_path(test_folder(), "a file");
    CHECK_STATUS(OK, file_write(path, JSON, strlen(JSON)));
    text_addf(&command, "cat \"%s\"", path);
    CHECK_STATUS(OK, s3_process_fetch(command.data, NULL, &k));
    CHECK(!strcmp(k.key_id, "AKID") && !strcmp(k.secret, "hidden") && k.expires_s == 0);
    s3_keys_release(&k);
    text_release(&command);
}

TEST(s3_process_starts_no_shell)
{
    struct s3_keys k = {0};
    const char *path = test_path(test_folder(), "made");
    struct text command = {0};
    text_addf(&command, "echo $(touch %s) `touch %s` | touch %s; touch %s", path, path, path, path);
    CHECK_STATUS(DATA, s3_process_fetch(command.data, NULL, &k));
    CHECK(!file_exists(path));
    text_release(&command);
}

TEST(s3_process_names_what_failed)
{
    static const struct {
        const char *command, *message;
        enum status status;
    } cases[] = {
        {" ", "the command is empty", STATUS_CONFIG},
        {"cat 'a", "is not closed", STATUS_CONFIG},
        {"/nowhere/program hidden", "cannot run /nowhere/program: No such file", STATUS_CONFIG},
        {"sh -c 'echo hidden; echo no login >&2; echo more >&2; exit 3'",
         "failed with exit code 3: no login", STATUS_CONFIG},
        {"sh -c 'echo hidden; kill -9 $$'", "failed with signal 9", STATUS_CONFIG},
        {"true", "not valid JSON", STATUS_DATA},
        {"echo hidden", "not valid JSON", STATUS_DATA},
        {"head -c 70000 /dev/zero", "more than 65536 bytes", STATUS_DATA},
        {"yes hidden", "more than 65536 bytes", STATUS_DATA}, /* and is killed */
        {"echo '{\"Version\": 2}'", "\"Version\" must be 1", STATUS_DATA},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct s3_keys k = {0};
        CHECK(s3_process_fetch(cases[i].command, NULL, &k) == cases[i].status);
        CHECK_MESSAGE("credential_process");
        CHECK_MESSAGE(cases[i].message);
        CHECK(!strstr(status_message(), "hidden") && !strstr(status_message(), "more >&2"));
        CHECK(!k.key_id);
    }
}

TEST(s3_process_is_killed_when_canceled)
{
    struct s3_keys k = {0};
    atomic_bool cancel = true;
    double begin = clock_monotonic_s();
    CHECK_STATUS(REQUEUE, s3_process_fetch("sleep 1000", &cancel, &k));
    CHECK(clock_monotonic_s() - begin < 500);
}
