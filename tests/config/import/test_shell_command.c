// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/import/shell_command.h"
#include "config/import/shell_parse.h"

static enum status open_script(const void *context, const char *path, struct text *bytes)
{
    CHECK(context == NULL);
    if (!strcmp(path, "exit.sh") || !strcmp(path, "return.sh")) {
        text_addf(bytes, "P=${P}1\n%s 0\nP=${P}2\n", *path == 'e' ? "exit" : "return");
        return STATUS_OK;
    }
    if (strcmp(path, "b.sh") && strcmp(path, "self.sh"))
        return status_fail(STATUS_MISSING, __FILE__, __LINE__, "no %s", path);
    if (!strcmp(path, "self.sh")) {
        text_adds(bytes, "bash self.sh again\n");
        return STATUS_OK;
    }
    text_adds(bytes, "X=$1${K:-none}\npretrain=1\npython pretrain_gpt.py --n $K\n");
    return STATUS_OK;
}

TEST(scripts_in_the_same_folder_are_followed_with_their_arguments)
{
    struct shell s;
    const char script[] =
        "docker exec -e K=5 box bash -c \"A=1 bash b.sh one L=2\"\nbash c.sh\nbash b.sh\n";
    shell_init(&s, "a.sh", (struct shell_files){open_script, NULL});
    CHECK_STATUS(OK, shell_parse(&s, script, sizeof script - 1, 1));
    CHECK(!strcmp(shell_get(&s, "X"), "5") && !strcmp(shell_get(&s, "L"), "2"));
    CHECK(s.command.count == 2 && !strcmp(s.command.items[1], "5"));
    CHECK(s.num_notes == 2 && strstr(s.notes[0].text, "c.sh is not followed"));
    CHECK(s.command_line == 1 && strstr(s.notes[1].text, "only the first is imported"));
    CHECK(s.arguments.count == 0 && !strcmp(s.file, "a.sh"));
    shell_release(&s);
}

/* Checks that P has the second value after the first, a script. */
static void check_variable(const char *const row[2])
{
    struct shell s;
    shell_init(&s, "a.sh", (struct shell_files){open_script, NULL});
    shell_set(&s, "P", "");
    CHECK_STATUS(OK, shell_parse(&s, row[0], strlen(row[0]), 1));
    if (strcmp(shell_get(&s, "P"), row[1]))
        print_error("%s: P is %s\n", row[0], shell_get(&s, "P"));
    CHECK(!strcmp(shell_get(&s, "P"), row[1]));
    shell_release(&s);
}

TEST(exit_ends_a_process_and_return_a_sourced_script)
{
    static const char *const cases[][2] = {
        {"bash exit.sh; P=${P}a", "1a"},
        {". return.sh; P=${P}a", "1a"},
        {"bash -c 'P=b; exit 1'; P=${P}a", "ba"},
        {"(P=b; exit 1); P=${P}a", "ba"},
        {"source exit.sh; P=${P}a", "1"},
        {"eval 'exit 1'; P=a", ""},
        {"bash -c 'source exit.sh; P=b'; P=${P}a", "1a"},
        {"{ P=b; exit 1; } | tee log; P=${P}a", "ba"},
        {"P=b | { exit 1; }; P=${P}a", "ba"},
        {"exec bash exit.sh; P=${P}a", "1"},
        {"exec bash return.sh; P=${P}a", "1"},
        {"exec python train.py; P=a", ""},
        {"exec >log; P=a", "a"},
        {"exec {log}>log; P=a", "a"},
        {"exec python train.py & P=a", "a"},
        {"bash -c 'exec bash exit.sh; P=b'; P=${P}a", "1a"},
        {"bash -c 'exec python train.py; P=b' && P=${P}a", "a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_variable(cases[i]);
}

TEST(the_status_of_an_exit_is_that_of_its_process)
{
    static const char *const cases[][2] = {
        {"(exit 1) || P=c", "c"},
        {"(exit 1) && P=c", ""},
        {"(exit 0) && P=c", "c"},
        {"(exit) && P=c", "c"},
        {"([ a = b ]; exit) || P=c", "c"},
        {"(false && P=a; exit) || P=${P}c", "c"},
        {"[ a = b ] || (exit) || P=c", "c"},
        {"([ a = b ] || P=c; exit) && P=${P}d", "cd"},
        {"(if [ a = a ]; then exit; fi) && P=c", "c"},
        {"([ a = b ] | cat; exit) && P=c", "c"},
        {"false; bash -c 'exit' && P=c", "c"},
        {"bash -c '[ a = b ] || exit' || P=c", "c"},
        {"(exit 256) && P=c", "c"},
        {"! (exit 3) && P=c", "c"},
        {"if bash -c 'exit 1'; then P=a; else P=b; fi", "b"},
        {"if bash -c '[ a = b ] || exit 2; exit 0'; then P=a; else P=b; fi", "b"},
        {"(exit $(nproc)) && P=a || P=b", ""},
        {"([ a = b ]; exit $?) || P=c", "c"},
        {"([ a = a ]; exit $?) && P=c", "c"},
        {"([ a = $(b) ]; exit $?) && P=a || P=b", ""},
        {"(case a in b) ;; a) [ x = y ];; *) true;; esac; exit) || P=c", "c"},
        {"(false; case a in b) false;; esac; exit) && P=c", "c"},
        {"(for i in 1 2; do [ $i = 1 ]; done; exit) || P=c", "c"},
        {"(for i in 1 2; do [ $i = 2 ]; done; exit) && P=c", "c"},
        {"(for i in 1 2; do false || break; [[ a == a ]]; done; exit) && P=c", "c"},
        {"(false; for i in; do false; done; exit) && P=c", "c"},
        {"(if [ a = a ]; then false; else true; fi; exit) || P=c", "c"},
        {"(if [ a = a ]; then false; elif [ a = a ]; then true; fi; exit) || P=c", "c"},
        {"(if [ a = b ]; then true; elif [ a = a ]; then false; fi; exit) || P=c", "c"},
        {"(if [ a = b ]; then false; else true; fi; exit) && P=c", "c"},
        {"(if [ a = b ]; then false; fi; exit) && P=c", "c"},
        {"([ a = b ] & exit) && P=c", "c"},
        {"(true && [ a = b ] & exit) && P=c", "c"},
        {"bash exit.sh && P=c", "c"},
        {". return.sh || P=c", "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_variable(cases[i]);
}

TEST(an_exit_is_named_by_the_file_that_it_is_in)
{
    struct shell s;
    shell_init(&s, "a.sh", (struct shell_files){open_script, NULL});
    CHECK_STATUS(OK, shell_parse(&s, "P=\nbash exit.sh\n", 16, 1));
    CHECK(!strcmp(s.exit_place.data, "exit.sh:2"));
    shell_release(&s);
}

TEST(unset_removes_a_variable)
{
    struct shell s;
    struct shell_words w = {0};
    struct shell_script script = {0};
    enum shell_result result;
    shell_init(&s, "a.sh", (struct shell_files){0});
    shell_set(&s, "A", "1");
    shell_words_add(&w, "unset", 5), shell_words_add(&w, "A", 1);
    CHECK_STATUS(OK, shell_command_run(&s, &w, 1, &result, &script));
    CHECK(!shell_get(&s, "A") && result == SHELL_TRUE && !script.bytes.data);
    shell_words_release(&w);
    shell_release(&s);
}

TEST(a_script_that_runs_itself_is_rejected)
{
    struct shell s;
    const char script[] = "bash self.sh one\n";
    shell_init(&s, "a.sh", (struct shell_files){open_script, NULL});
    CHECK_STATUS(CONFIG, shell_parse(&s, script, sizeof script - 1, 1));
    CHECK_MESSAGE("self.sh:1: scripts nested more than 8 deep");
    CHECK(s.arguments.count == 0 && !strcmp(s.file, "a.sh"));
    shell_release(&s);
}
