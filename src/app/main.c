/* main.c -- runs the command, prints its failure once, and turns that into an exit code. */
// SPDX-License-Identifier: Apache-2.0
#include "app/arguments.h"
#include "app/commands.h"
#include "app/completion.h"
#include "app/manual.h"
#include "base/file.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "base/thread.h"
#include "doctor/build.h"
#include "machine/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum status unknown_command(const char *name)
{
    const char *suggestion = commands_suggest(name);
    if (file_has_suffix(name, ".toml"))
        FAIL(USAGE, "\"%s\" is not a command; did you mean `llamero train %s`?", name, name);
    if (suggestion) FAIL(USAGE, "unknown command \"%s\"; did you mean \"%s\"?", name, suggestion);
    FAIL(USAGE, "unknown command \"%s\"; `llamero --help` lists them", name);
}

/* `llamero --help=markdown` is all of docs/commands.md. */
static enum status print_help(char *request)
{
    TRY(manual_print_program(request, stdout));
    if (strcmp(request, "--help=markdown") != 0) return STATUS_OK;
    for (const struct command *c = commands; c->name; c++) {
        char *argv[] = {(char *)(uintptr_t)c->name, request};
        TRY(c->run(2, argv));
    }
    return STATUS_OK;
}

static enum status print_version(int argc, char **argv)
{
    struct text out = {0};
    bool verbose = argc > 0 && !strcmp(argv[0], "--verbose");
    if (argc > verbose)
        FAIL(USAGE, "--version: unexpected \"%s\"; only --verbose may follow", argv[verbose]);
    text_addf(&out, "llamero %s, build ", LLAMERO_VERSION);
    program_add_build(&out);
    text_adds(&out, "\n");
    if (verbose) build_describe(&out);
    fputs(out.data, stdout);
    text_release(&out);
    return STATUS_OK;
}

/* Completes the last of the words after the program's name (completion.h). */
static enum status complete(int argc, char **argv)
{
    while (argc > 1 && !strncmp(argv[0], "--color", 7)) {
        int skipped = strchr(argv[0], '=') ? 1 : 2;
        if (skipped == argc) completion_print_colors(argv[1]);
        if (skipped == argc) return STATUS_OK;
        argc -= skipped, argv += skipped;
    }
    const struct command *c = argc > 1 ? commands_find(argv[0]) : NULL;
    if (argc < 2) {
        completion_print_commands(argc ? argv[0] : "");
        return STATUS_OK;
    }
    if (!strcmp(argv[0], "help")) completion_print_commands(argv[argc - 1]);
    if (!c) return STATUS_OK;
    char **words = heap((size_t)(argc + 1) * sizeof *words);
    words[0] = argv[0], words[1] = (char *)(uintptr_t) "--complete";
    memcpy(words + 2, argv + 1, (size_t)(argc - 1) * sizeof *words);
    enum status st = c->run(argc + 1, words);
    free(words);
    return st;
}

/* Whether the command computes with all threads for more than a moment. */
static bool computes(const char *command)
{
    static const char *const names[] = {"train", "eval", "generate", "bench", "doctor"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(command, names[i])) return true;
    return false;
}

static enum status run_command(int argc, char **argv)
{
    char help[] = "--help";
    char **words = argv;
    int read;
    TRY(arguments_read_color(argc - 1, argv + 1, &read));
    argc -= read, argv += read;
    if (argc < 2) {
        TRY(manual_print_program(help, stderr));
        FAIL(USAGE, "a command is required");
    }
    if (!strcmp(argv[1], "--complete")) return complete(argc - 2, argv + 2);
    if (!strncmp(argv[1], "--help", 6) || !strcmp(argv[1], "-h")) return print_help(argv[1]);
    if (!strcmp(argv[1], "help") && argc > 2) {
        const struct command *c = commands_find(argv[2]);
        if (!c) return unknown_command(argv[2]);
        return c->run(2, (char *[]){argv[2], help});
    }
    if (!strcmp(argv[1], "help")) return print_help(help);
    if (!strcmp(argv[1], "--version")) return print_version(argc - 2, argv + 2);
    const struct command *c = commands_find(argv[1]);
    if (c && computes(c->name)) thread_limit_spinning(words);
    if (c) return c->run(argc - 1, argv + 1);
    return unknown_command(argv[1]);
}

/* Gives standard streams that are closed a descriptor, so that no file that is opened later gets
 * its number and the messages.  Reading or writing them fails, as before. */
static void open_closed_streams(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    if (!getenv("LLAMERO_TRACE")) status_exit_on_bug(); /* else abort may write a core file */
    open_closed_streams();
    signal(SIGXFSZ, SIG_IGN); /* a write beyond `ulimit -f` fails with EFBIG, and a message */
    enum status st = run_command(argc, argv);
    if (!st && (fflush(stdout) || ferror(stdout))) st = FAILURE(IO, "writing to stdout failed");
    if (st && !status_is_remote()) log_failure(st);
    /* The call chain helps developers but confuses users, so it is printed on request. */
    if (st && getenv("LLAMERO_TRACE")) fprintf(stderr, "%s", status_stack());
    if (st && st != STATUS_REQUEUE && !status_is_shared())
        launch_abort(status_exit_code(st)); /* other ranks may be waiting for this one */
    return status_exit_code(st);
}
