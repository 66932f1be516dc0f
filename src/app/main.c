/* main.c -- runs the command, prints its failure once, and turns that into an exit code. */
// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "base/log.h"
#include "base/program.h"
#include "base/text.h"
#include "comm/comm.h"
#include "machine/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *summary;
    enum status (*run)(int argc, char **argv);
} commands[] = {
#define COMMAND(name, summary) {#name, summary, command_##name},
#include "app/commands.def"
#undef COMMAND
    {NULL, NULL, NULL},
};

static void print_help(FILE *to)
{
    fprintf(to, "usage: llamero COMMAND [arguments] [section.key=value ...]\n\n"
                "Pretrains Llama models, from raw text to a Hugging Face checkpoint.\n\n");
    for (size_t i = 0; commands[i].name; i++)
        fprintf(to, "  %-11s %s\n", commands[i].name, commands[i].summary);
    fprintf(to,
            "\n`llamero COMMAND --help` describes a command, `llamero config explain` the keys.\n");
}

static enum status unknown_command(const char *name)
{
    const char *suggestion = NULL;
    size_t distance = 4;
    for (size_t i = 0; commands[i].name; i++)
        if (text_is_closer(commands[i].name, name, &distance)) suggestion = commands[i].name;
    if (suggestion) FAIL(USAGE, "unknown command \"%s\"; did you mean \"%s\"?", name, suggestion);
    FAIL(USAGE, "unknown command \"%s\"; `llamero --help` lists them", name);
}

static enum status run_command(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        FAIL(USAGE, "a command is required");
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help(stdout);
        return STATUS_OK;
    }
    if (!strcmp(argv[1], "--version")) {
        struct text build = {0};
        program_add_build(&build);
        printf("llamero %s, build %s\n", LLAMERO_VERSION, build.data);
        text_release(&build);
        return STATUS_OK;
    }
    for (size_t i = 0; commands[i].name; i++)
        if (!strcmp(commands[i].name, argv[1])) return commands[i].run(argc - 1, argv + 1);
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
    open_closed_streams();
    enum status st = run_command(argc, argv);
    if (!st && (fflush(stdout) || ferror(stdout)))
        st = status_fail(STATUS_IO, __FILE__, __LINE__, "writing to stdout failed");
    if (st && !comm_failed_elsewhere()) log_failure(st);
    /* The call chain helps developers but confuses users, so it is printed on request. */
    if (st && getenv("LLAMERO_TRACE")) fprintf(stderr, "%s", status_stack());
    if (st && st != STATUS_REQUEUE && !status_is_shared())
        launch_abort(status_exit_code(st)); /* other ranks may be waiting for this one */
    return status_exit_code(st);
}
