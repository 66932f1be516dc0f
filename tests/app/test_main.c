// SPDX-License-Identifier: Apache-2.0
#include "test.h"

TEST(main_lists_the_commands_and_prints_its_version)
{
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, &err, "--help") == 0);
    CHECK(strstr(out.data, "usage: llamero COMMAND") && !err.len);
    CHECK(LLAMERO(&out, &err, "--version") == 0);
    CHECK(!strncmp(out.data, "llamero ", 8) && !err.len);
    text_release(&out);
    text_release(&err);
}

TEST(main_rejects_wrong_usage_with_64_and_one_line)
{
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, &err, "no-such-command-at-all") == 64);
    CHECK(!out.len);
    CHECK(!strcmp(err.data, "error: unknown command \"no-such-command-at-all\"; "
                            "`llamero --help` lists them\n"));
    CHECK(test_llamero(&out, &err, (const char *const[]){NULL}) == 64);
    CHECK(!out.len && strstr(err.data, "a command is required"));
    text_release(&out);
    text_release(&err);
}

TEST(main_fails_if_stdout_cannot_be_written)
{
    struct text err = {0};
    const char *program = getenv("LLAMERO") ? getenv("LLAMERO") : "build/llamero";
    const char *const argv[] = {"sh", "-c", "exec \"$0\" --help >/dev/full", program, NULL};
    CHECK(test_run(argv, NULL, &err) == 74);
    CHECK(strstr(err.data, "writing to stdout failed"));
    text_release(&err);
}

TEST(the_verbose_version_names_build_options_and_libraries)
{
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, &err, "--version", "--verbose") == 0);
    static const char *const lines[] = {"\ncompiler   ",        "\nflags      ", "\nISAs       ",
                                        "\nMPI        ",        "\nGPU        ", "\nHub, S3    ",
                                        "\nlibraries  oneDNN ", "/libdnnl.so."};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) CHECK(strstr(out.data, lines[i]));
    CHECK(LLAMERO(NULL, &err, "--version", "--verbos") == 64);
    CHECK(strstr(err.data, "only --verbose may follow"));
    text_release(&out), text_release(&err);
}

TEST(color_is_set_before_or_after_the_command)
{
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(NULL, &err, "--color", "always", "train", "/no/such.toml") == 66);
    CHECK(strstr(err.data, "\033[31m"));
    CHECK(LLAMERO(NULL, &err, "train", "/no/such.toml", "--color=always") == 66);
    CHECK(strstr(err.data, "\033[31m"));
    CHECK(LLAMERO(NULL, &err, "--color=never", "train", "/no/such.toml") == 66);
    CHECK(!strchr(err.data, '\033'));
    CHECK(LLAMERO(NULL, &err, "--color", "red", "train", "/no/such.toml") == 64);
    CHECK(strstr(err.data, "--color: \"red\": expected auto, always or never"));
    CHECK(LLAMERO(NULL, &err, "--color") == 64);
    CHECK(strstr(err.data, "--color requires a value"));
    text_release(&out), text_release(&err);
}

/* GOMP_SPINCOUNT as libgomp prints it when `train --help` starts last; returns how often
 * it starts. */
static int read_spins(const char *environment, const char *flag, struct text *spins)
{
    static const char name[] = "GOMP_SPINCOUNT = '";
    struct text err = {0}, command = {0};
    const char *program = getenv("LLAMERO") ? getenv("LLAMERO") : "build/llamero";
    text_addf(&command,
              "env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose %s \"$0\" %s "
              "train --help >/dev/null",
              environment, flag);
    CHECK(test_run((const char *const[]){"sh", "-c", command.data, program, NULL}, NULL, &err) ==
          0);
    int count = 0;
    for (const char *at = err.data; at && (at = strstr(at, name)); count++) {
        at += strlen(name);
        text_clear(spins);
        text_add(spins, at, strcspn(at, "'"));
    }
    text_release(&err);
    text_release(&command);
    return count;
}

TEST(waiting_threads_of_a_command_that_computes_sleep_soon)
{
    struct text spins = {0};
    CHECK(read_spins("", "", &spins) == 2 && !strcmp(spins.data, "10000"));
    CHECK(read_spins("", "--color never", &spins) == 2 && !strcmp(spins.data, "10000"));
    CHECK(read_spins("GOMP_SPINCOUNT=77", "", &spins) == 1 && !strcmp(spins.data, "77"));
    CHECK(read_spins("OMP_WAIT_POLICY=active", "", &spins) == 1 &&
          strcmp(spins.data, "10000") != 0);
    text_release(&spins);
}
